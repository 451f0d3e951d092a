"""Laws that every number passes between its source and the output; what fails is refused, with its reason, and counted.

One file per family of laws, each with plain functions that say which rows or values break which law. A reader or an analysis
that refuses something notes it in the ledger through :func:`reason`, or in a :class:`Refusals` where there is no ledger any more;
``summary.laws`` lists both.
"""

from ringwright.bounds.laws.law import LAWS, Law, Refusals, of_ledger, reason, told_by, wrong_results

__all__ = ["LAWS", "Law", "Refusals", "of_ledger", "reason", "told_by", "wrong_results"]
