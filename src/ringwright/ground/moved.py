"""Old module paths: they work for one release, each with a warning when it is first imported.

``_TOGETHER``: (folder before, folder now) -> modules that kept their names; ``_BY_NAME``: those that did not. The longest name
that fits counts, so that a folder takes along whatever is in it.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_PACKAGE = "ringwright."
# Part of the public face: `ringwright.errors` is where it was for whoever uses it, and says nothing.
_PUBLIC = ("ringwright.errors", "ringwright.language", "ringwright.pictures", "ringwright.survey")
_TOGETHER = {
    ("advise", "ringwright_lab.judges"): "predicted",
    ("costs.contention", "ringwright_lab.judges"): "passes triggers",
    ("costs.learnt", "ringwright_lab.judges"): "learning",
    ("", "ringwright.algorithms"): "innetwork language",
    ("", "ringwright.bounds"): "laws",
    ("", "ringwright.formats"): "exports sources",
    ("", "ringwright.graph"): "algebra frameworks memory pipelines",
    ("", "ringwright.ground"): (
        "apart called decoder drafts errors extras headings knobs mixing notebook plugins reopened scratch scrub "
        "spellings steps sums trace_tables units version"
    ),
    ("", "ringwright.model"): (
        "codecs collective interpreter message_pairs program registry rewrites shortest_paths sketches software "
        "streams threadblocks topology trace traced validity values wiring workload"
    ),
    ("", "ringwright.reports"): "serve",
    ("", "ringwright_lab"): "contracts papers survey testing",
    ("analysis", "ringwright.analysis.compared"): (
        "diff diff_answer diff_document diff_gate diff_times gate gate_document gate_times"
    ),
    ("analysis", "ringwright.analysis.exposed"): (
        "bucket_fusions copied_collectives fusion_rows fusions overlap overlap_account overlap_audit "
        "overlap_remedies product_fusions variables_seen"
    ),
    ("analysis", "ringwright.analysis.hangs"): "died hang hang_gauge hang_mismatch hang_progress hang_waits watchdogs",
    ("analysis", "ringwright.analysis.machine"): "topology topology_document topology_loads",
    ("analysis", "ringwright.analysis.slow"): (
        "arrivals disturbance fail_slow lateness own_time own_work places slow_cells slow_groups slow_work "
        "stragglers stragglers_said"
    ),
    ("analysis", "ringwright.analysis.timeline"): "bars event_levels event_view rank_timeline",
    ("analysis", "ringwright.analysis.traffic"): (
        "burst_clocks burst_document bursts call_edges call_transfers incast message_transfers traffic_over_time "
        "transfers"
    ),
    ("cli", "ringwright_lab.cli"): "bench compare lab reproduce survey surveyed sweep systems",
    ("costs", "ringwright.bounds"): (
        "arcs automorphisms certificates cheapest_trees concurrent_flow cuts demands forests joint_bounds "
        "late_bounds lower_bounds maxflow round_limits rounds routed_bounds shared_trees symmetry tree_demands "
        "tree_pool tree_search"
    ),
    ("costs", "ringwright.model"): "links stages",
    ("execute", "ringwright_lab"): "live models",
    ("execute", "ringwright_lab.models"): "parallel",
    ("reports", "ringwright.reports.calls"): (
        "bounded calibrated choices fault_costs judged_tables mpi_ranks probable shared_machine simulated "
        "synthesised synthesised_next verified winners"
    ),
    ("reports", "ringwright.reports.draw"): (
        "charts curves load_picture log_player machine_graph machine_picture machine_rows pictures "
        "pipeline_picture player rank_grid ranks_picture ring_pictures tree_maps tree_pictures"
    ),
    ("reports", "ringwright.reports.pages"): "advised_page job_page simulated_page step_page synthesised_page",
    ("reports", "ringwright.reports.steps"): (
        "advised aggregated backtested jobs memory placements provisioned workload"
    ),
    ("reports", "ringwright_lab.reports"): (
        "accuracy benched compared concluded experiment lab learning_curves plots reproduced step_accuracy "
        "survey survey_page swept systems"
    ),
    ("reports.draw", "ringwright_lab.reports"): "plots",
    ("reports.steps", "ringwright_lab.reports"): "step_accuracy",
    (
        "sources",
        "ringwright.formats.sources.gate",
    ): "archives inputs missing reached salvage tails temporary whole wrapped",
    ("sources", "ringwright.formats.sources.programs"): (
        "msccl_xml mscclpp_json mscclpp_lower mscclpp_plan taccl_sketch workload_json"
    ),
    ("exports", "ringwright.formats.settings"): (
        "ddp_buckets fsdp2_prefetch megatron_flags mpich_json msccl_config nccl_environment nccl_tuner_csv ompi_rules "
        "rccl_tuner_csv torchcomms_tuner torchtitan_toml"
    ),
    ("sources", "ringwright.formats.settings"): (
        "ddp_buckets fsdp2_prefetch megatron_flags mpich_json msccl_config msccl_rules nccl_environment "
        "nccl_tuner_csv ompi_rules rccl_tuner_csv torchcomms_tuner torchtitan_toml"
    ),
    ("sources", "ringwright.formats.sources.tables"): (
        "csv_rows nccl_columns nccl_tests nccl_tests_shapes nccl_tests_table perf_table"
    ),
    ("studies", "ringwright"): "jobs",
    ("studies", "ringwright.accuracy"): "judged judged_choices judged_engines measured_calls mpi_accuracy",
    ("studies", "ringwright.advise"): "provision",
    ("studies", "ringwright.capture"): "difference doctor executed record recordings run",
    ("studies", "ringwright.capture.live"): "live_alerts live_hand_over live_late live_metrics live_rates",
    ("studies", "ringwright.jobs"): "exporting model_workload one_clock predict",
    ("studies", "ringwright.search"): "unfolded",
    ("studies", "ringwright_lab"): "bench sweep",
    ("studies", "ringwright_lab.bench"): "compare",
    ("studies", "ringwright_lab.judges"): (
        "accuracy accuracy_cases accuracy_engines graph_ranks partitioned pipeline_ranks tile_triggers"
    ),
    ("studies.jobs", "ringwright.calls"): "placed",
    ("studies.jobs", "ringwright.engines.packets"): "followed",
    ("studies.jobs", "ringwright.jobs.explained"): (
        "account exposed_operations named_remedies obstacles passing pipeline_picture remedies tracks why"
    ),
    ("studies.jobs", "ringwright.jobs.pricing"): (
        "at_once copies costs host_links known networks places said_operations senders siblings whose wire"
    ),
    ("studies.jobs", "ringwright_lab.judges"): "gains halves_in_lab in_lab",
    ("survey", "ringwright.calls"): "lists",
    ("testing", "ringwright_lab.contracts"): "conformance",
}
_BY_NAME = {
    "analysis.trace_bursts": "ringwright.analysis.traffic.of_trace",
    "lab": "ringwright_lab.network",
    "pictures": "ringwright.reports.notebook",
    "reports.job_remedies": "ringwright.reports.steps.remedies",
    "sources.programs": "ringwright.formats.sources.programs.opened",
    "studies": "ringwright.calls",
    "studies.jobs.accuracy": "ringwright.accuracy.jobs",
    "studies.jobs.live": "ringwright_lab.live.on_ranks",
    "studies.live": "ringwright.capture.live.following",
    "studies.synthesis": "ringwright.search",
}


@cache
def _homes() -> dict[str, str]:
    """Return where each moved module or folder lives now, by its old name without the package's."""
    homes = dict(_BY_NAME)
    for (before, now), names in _TOGETHER.items():
        homes.update({f"{before}.{name}" if before else name: f"{now}.{name}" for name in names.split()})
    return homes


def home(name: str) -> str | None:
    """Return where a module of an old name lives now; None where it is no old name."""
    words = name.removeprefix(_PACKAGE).split(".")
    for n_words in range(len(words), 0, -1):
        if (now := _homes().get(".".join(words[:n_words]))) is not None:
            return ".".join([now, *words[n_words:]])
    return None


class _Moved(MetaPathFinder, Loader):
    """Finds modules under their old names, and gives the ones that took their places."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module of an old name; None for all others."""
        if not fullname.startswith(_PACKAGE) or home(fullname) is None:
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put what took the module's place under its old name, and say so."""
        name = module.__name__
        now = home(name) or name
        sys.modules[name] = import_module(now)
        if name not in _PUBLIC:
            warnings.warn(f"{name} is {now} now; the old path goes with the next release", DeprecationWarning, 2)


def remember() -> None:
    """Let old paths be imported."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())
