"""What an NCCL line can say: one table of rules, each a name and the shape of its text, tried in order.

The shapes are those of the release tags 2.3.5 to 2.30.7 and of RCCL; a rule covers all releases of its line.
``STRUCTURED`` tells a line that began like one of these but does not end like it: it was cut.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringwright.bounds.laws.transports import SPELLED

_HEX = r"(?:0x)?[0-9a-fA-F]+"


class Rule(NamedTuple):
    """A kind of line and the shape of its text."""

    name: str
    pattern: re.Pattern[str]


def _rule(name: str, pattern: str) -> Rule:
    return Rule(name, re.compile(pattern))


_ENDS = (
    r"(?:Ring|Channel) (?P<channel>\d{1,4})(?:/(?P<conn>\d{1,4}))? : (?P<src>\d{1,7})(?:\[(?P<srcid>\w{1,18})\])? -> "
    r"(?P<dst>\d{1,7})(?:\[(?P<dstid>\w{1,18})\])?(?: \[(?P<direction>send|receive)\])? via "
)
# A connection by what is no transport: the ranks are whole, what stands behind them is not.
ODD_CONNECTION = re.compile(rf"{_ENDS}(?=\S)")
COLLECTIVE = re.compile(
    r"(?:(?P<op>\w{1,40}): )?opCount (?P<opcount>[0-9a-fA-F]{1,16}) sendbuff (?P<send>\S+) recvbuff (?P<recv>\S+) "
    r"(?:acc \S+ )?(?:count|size) (?P<count>\d{1,20}) datatype (?P<datatype>\d{1,4}) op (?P<redop>-?\d{1,10}) "
    r"root (?P<root>-?\d{1,9}) comm (?P<comm>0x[0-9a-fA-F]{1,16}) \[nranks=(?P<nranks>\d{1,7})\] "
    r"stream (?P<stream>0x[0-9a-fA-F]{1,16}|\(nil\)|0)(?: task (?P<task>\d+) globalrank (?P<globalrank>\d{1,7}))?$"
)

RULES = (
    Rule("coll", COLLECTIVE),
    _rule("connection", rf"{_ENDS}(?P<via>{SPELLED})(?: comm 0x[0-9a-fA-F]{{1,16}}(?: nRanks \d{{1,7}})?)?$"),
    _rule(
        "ring",
        r"Channel (?P<channel>\d{1,4})(?:/(?P<of>\d{1,4}))? : *(?P<ranks>\d{1,7}(?: +\d{1,7})*)(?P<more> *\.{3})?$",
    ),
    _rule("trees", r"Trees (?P<trees>\[\d{1,4}\] -?\d.*->-?\d+(?:/-?\d+)*(?:\|.*)?)$"),
    _rule(
        "init",
        r"(?:(?P<call>ncclComm\w+) )?comm (?P<comm>0x[0-9a-fA-F]{1,16}) rank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7})"
        r"(?P<rest>.*?) - (?P<what>Init|Destroy|Abort|Finalize|Revoke) (?P<phase>START|COMPLETE)$",
    ),
    _rule(
        "nodes",
        r"comm (?P<comm>0x[0-9a-fA-F]{1,16}) rank (?P<rank>\d{1,7}) nRanks (?P<nranks>\d{1,7}) nNodes (?P<nodes>\d{1,6}) "
        r"localRanks (?P<local>\d{1,6}) localRank (?P<localrank>\d{1,6})(?: MNNVL \d)?(?:.*)$",
    ),
    _rule(
        "channels",
        r"(?P<coll>\d{1,4}) coll channels, (?:(?P<collnet>\d{1,4}) collnet channels, )?(?:(?P<nvls>\d{1,4}) nvls channels, )?"
        r"(?P<p2p>\d{1,4}) p2p channels, (?P<peer>\d{1,4}) p2p channels per peer$",
    ),
    _rule(
        "tuning",
        r"(?:(?P<op>\w+): *)?(?P<bytes>\d{1,18}) Bytes -> Algo (?P<algo>\w{1,40}) +proto (?P<proto>\w{1,40}) *"
        r"(?:time (?P<time>[\d.eE+-]+))? *(?:channel\{Lo\.\.Hi\}=\{(?P<lo>\d{1,6})\.\.(?P<hi>\d{1,6})\})?(?P<rest>.*)$",
    ),
    _rule("tuning-kernel", r"(?P<op>\w+):? *\[(?P<path>[A-Za-z ]+)\]:? *(?P<bytes>\d{1,18}) Bytes -> *(?P<rest>\S.*)$"),
    _rule("network", r"Using network (?P<name>.{1,80})$"),
    _rule(
        "network-lost",
        r"(?P<why>NET/Plugin *:? (?!.*CollNet).{0,80}(?:cannot open shared object|[Ff]ailed|returned [1-9]|"
        r"[Cc]ould not (?:find|load)|No plugin found).*|NET/IB *:? *No device found.*|Failed to open libibverbs\S*.*|"
        r"NET/OFI .{0,120}(?:[Ff]ailed|No eligible|not found|not supported).*)$",
    ),
    _rule(
        "init-timing",
        r"Init timings - \w{1,40}: rank \d{1,7} nranks \d{1,7} total (?P<total>\d{1,9}(?:\.\d{1,6})?)"
        r"(?: \((?P<parts>[^)]{1,300})\))?.*$",
    ),
    _rule("nics", r"NET/(?P<net>IB|Socket) *: Using (?P<list>\[0\].*)$"),
    _rule("ofi", r"NET/OFI Selected Provider is (?P<provider>[\w;.-]{1,60})(?: \(found (?P<nics>\d+) nics\))?.*$"),
    _rule("platform", r"NET/OFI Running on (?P<name>[\w.-]{1,60}) platform\b.*$"),
    _rule("bootstrap", r"Bootstrap *: Using (?:\[0\])?(?P<interface>[\w.-]{1,40}):(?P<address>\S+).*$"),
    _rule("environment", r"(?P<name>NCCL_\w{1,80}) set (?:by \w+ )?to (?P<value>.{0,200}?)\.?$"),
    _rule(
        "version", r"(?:NCCL version|RCCL version *:?) ?(?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,5})?\b)(?P<build>\S*).*$"
    ),
    _rule(
        "completion",
        r"(?P<net>NET/\S+) *: Got completion (?:from peer (?P<peer>\S+) )?with (?:error|status=) ?(?P<status>\d{1,9})\b.*$",
    ),
    _rule(
        "async",
        r"(?P<net>NET/\S+) *:(?: (?P<device>\S+))? *Got (?P<severity>[\w-]+ )?async (?P<severity2>\w+ )?event *: *(?P<event>.+)$",
    ),
    _rule("chain", r"(?P<at>[\w./-]+:\d+) -> (?P<code>\d{1,3})(?: \[(?P<thread>[^\]]*)\])?$"),
    _rule("closed", r"\[Service thread\] Connection closed by localRank (?P<localrank>\d+)$"),
    _rule("kernel-trace", r"## \[.*?\].*KL HWID.*$"),
)

# Began like a line whose content counts; when no rule fits, the line was cut.
STRUCTURED = re.compile(
    r"(?:\w+: opCount|opCount [0-9a-f]|(?:Ring|Channel) \d+|Trees \[|(?:ncclComm\w+ )?comm 0x|\d+ coll channels|\w+: *\d+ Bytes)"
)
# What an operation's line begins with, and which field may follow which: `opCount 3 sendbuff 0x1 ...`.
_OPERATION = re.compile(r"\w{1,40}: opCount [0-9a-fA-F]{1,16}(?: |$)")
_INSIDE = re.compile(r"\b\w{1,40}: opCount [0-9a-fA-F]{1,16} sendbuff ")
_TAG = re.compile(r"^(?:\[[^\]]{0,40}\]|\([^)]{0,40}\)|\d{10,19}) (?=\w{1,40}: opCount )")
_RANKS = "[nranks="
_NEXT = {
    "": ("opCount",),
    "opCount": ("sendbuff",),
    "sendbuff": ("recvbuff",),
    "recvbuff": ("acc", "count", "size"),
    "acc": ("count", "size"),
    "count": ("datatype",),
    "size": ("datatype",),
    "datatype": ("op",),
    "op": ("root",),
    "root": ("comm",),
    "comm": (_RANKS,),
    _RANKS: ("stream",),
    "stream": ("task",),
    "task": ("globalrank",),
}
_VALUE = re.compile(r"(?:0x[0-9a-fA-F]*|[0-9a-fA-F]*|-\d*|\(n?i?l?\)?)")
_WHOLE_VALUE = re.compile(r"0x[0-9a-fA-F]+|[0-9]+|\(nil\)")
_GROUP = re.compile(r"\[nranks=\d+\]")
# A launch (group) counter of an API call; nothing in it that the collective's own line does not say.
_KEYED = re.compile(r"(\w+) (\S+)")
_NODE = r"-?\d{1,7}"
_TREE = re.compile(rf"\[(\d{{1,4}})\] ({_NODE}(?:/{_NODE})*)->({_NODE})->({_NODE}(?:/{_NODE})*)(?!\d)")
_NIC = re.compile(r"\[(\d{1,6})\]([\w.-]+)(?::(\d+))?(?:/(\w+))?")
_PROXY_RANK = re.compile(r"/(\d{1,4})(?:\((\d{1,7})\))?")


def parse(text: str) -> tuple[str, re.Match[str]] | None:
    """Return the name and match of the first rule that fits the whole text."""
    for rule in RULES:
        match = rule.pattern.match(text)
        if match is not None:
            return rule.name, match
    return None


def untagged(text: str) -> str:
    """Return an operation's text without what a patched build puts before it: ``[2] AllReduce: opCount e ...``."""
    return _TAG.sub("", text) if " opCount " in text else text


def holds_operation(text: str) -> bool:
    """Whether an operation's line begins somewhere inside a text."""
    return " opCount " in text and _INSIDE.search(text) is not None


def is_operation(text: str) -> bool:
    """Whether a text begins as an operation's line does."""
    return _OPERATION.match(text) is not None


def is_of_unknown_layout(text: str) -> bool:
    """Whether a text begins an operation's line and goes on as no such line does: that it was cut does not explain it."""
    if not is_operation(text):
        return False
    words, field, value = text.split(" ")[1:], "", ""
    while words:
        word = words.pop(0)
        following = _NEXT.get(field, ())
        if not words:
            return not (
                any(name.startswith(word) for name in following) or (word.startswith(_RANKS) and field == "comm")
            )
        if field == "comm" and _GROUP.fullmatch(word):
            field = _RANKS
            continue
        if word not in following:
            return True
        field, value = word, words.pop(0)
        if _VALUE.fullmatch(value) is None:
            return True
    return field in ("stream", "globalrank") and _WHOLE_VALUE.fullmatch(value) is not None


def keyed(text: str) -> dict[str, str]:
    """Return the ``name value`` pairs of an init line: ``cudaDev 0 nvmlDev 0 busId 7000 commId 0x..``."""
    return dict(_KEYED.findall(text))


def trees(text: str) -> list[tuple[int, list[int], int, list[int]]]:
    """Return ``(channel, down, self, up)`` per channel; -1 stands for none. Releases 2.5 to 2.7 print a second half."""
    return [
        (int(channel), _ranks(down), int(own), _ranks(up))
        for channel, down, own, up in _TREE.findall(_first_halves(text))
    ]


def _first_halves(text: str) -> str:
    return re.sub(r"\|\S+", "", text)


def _ranks(text: str) -> list[int]:
    return [int(part) for part in text.split("/") if int(part) >= 0]


def nics(text: str) -> list[tuple[int, str]]:
    """Return ``(index, device)`` of a ``NET/IB : Using`` or ``NET/Socket : Using`` list."""
    return [(int(index), name) for index, name, _, _ in _NIC.findall(text.partition(";")[0])]


def transport(via: str) -> tuple[str, int | None, int | None]:
    """Return the transport, the NIC index and the proxy rank of ``NET/IB/0(4)/GDRDMA`` or ``P2P/IPC``."""
    if via == "direct shared memory":
        return "SHM", None, None  # of releases before 2.12
    if not via.startswith("NET/"):
        return via.split(maxsplit=1)[0][:40], None, None
    match = _PROXY_RANK.search(via, 4)
    if match is None:
        return via[:40], None, None
    proxy = int(match[2]) if match[2] else None
    return via[: match.start()] + via[match.end() :], int(match[1]), proxy
