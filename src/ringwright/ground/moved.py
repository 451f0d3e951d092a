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
        "decoder drafts errors extras headings knobs notebook plugins scratch scrub "
        "spellings sums trace_tables units version"
    ),
    ("", "ringwright.model"): (
        "codecs collective interpreter message_pairs program registry rewrites shortest_paths sketches software "
        "streams threadblocks topology trace validity values wiring workload"
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
    ("execute", "ringwright_lab.live"): "half_sums halves",
    ("execute", "ringwright_lab.models"): "parallel",
    ("reports", "ringwright.reports.calls"): (
        "bounded calibrated choices fault_costs judged_tables mpi_ranks shared_machine simulated "
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
    ): "archives inputs salvage tails temporary ",
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
    ("studies", "ringwright.capture"): "difference doctor record recordings run",
    ("studies", "ringwright.capture.live"): "live_alerts live_hand_over live_late live_metrics live_rates",
    ("studies", "ringwright.jobs"): "exporting model_workload one_clock predict",
    ("studies", "ringwright.search"): "",
    ("studies", "ringwright_lab"): "bench sweep",
    ("studies", "ringwright_lab.bench"): "compare",
    ("studies", "ringwright_lab.judges"): (
        "accuracy accuracy_cases accuracy_engines graph_ranks partitioned pipeline_ranks tile_triggers"
    ),
    ("studies.jobs", "ringwright.calls"): "",
    ("studies.jobs", "ringwright.engines.packets"): "",
    ("studies.jobs", "ringwright.jobs.explained"): (
        "account exposed_operations named_remedies obstacles pipeline_picture remedies tracks why"
    ),
    ("studies.jobs", "ringwright.jobs.pricing"): ("copies costs host_links networks places senders siblings wire"),
    ("studies.jobs", "ringwright_lab.judges"): "gains halves_in_lab in_lab",
    ("survey", "ringwright.calls"): "lists",
    ("testing", "ringwright_lab.contracts"): "conformance",
}
_BY_NAME = {
    "advise.by_name": "ringwright.advise.entry",
    "advise.elsewhere": "ringwright.advise.other_verbs",
    "advise.lumps": "ringwright.advise.bucket_tensors",
    "advise.mended": "ringwright.advise.without_stragglers",
    "advise.said": "ringwright.advise.files_read_back",
    "advise.unmeasured": "ringwright.advise.unmeasured_operations",
    "algebra.computing": "ringwright.graph.algebra.computation",
    "algebra.equal": "ringwright.graph.algebra.equality",
    "algebra.moving": "ringwright.graph.algebra.movement",
    "algebra.once": "ringwright.graph.algebra.micro_batch_sums",
    "algebra.opened": "ringwright.graph.algebra.unfuse",
    "algebra.spelled": "ringwright.graph.algebra.typed_rules",
    "algebra.turns": "ringwright.graph.algebra.block_loop",
    "algebra.valued": "ringwright.graph.algebra.assumed_values",
    "algorithms.synthesis.forest.together": "ringwright.algorithms.synthesis.forest.joint_forests",
    "analysis.judged": "ringwright.analysis.broken_laws",
    "analysis.made_by": "ringwright.analysis.library_of_calls",
    "analysis.shown": "ringwright.analysis.notebook_tables",
    "analysis.trace_bursts": "ringwright.analysis.traffic.of_trace",
    "apart": "ringwright.ground.untrusted_tables",
    "called": "ringwright.ground.invocation",
    "capture.recorder.fate": "ringwright.capture.recorder.exit_status",
    "cli.placed": "ringwright.cli.placement_options",
    "cli.recorded": "ringwright.cli.recording_options",
    "costs.learnt.described": "ringwright.costs.learnt.table_machine",
    "costs.looped": "ringwright.costs.ring_overlap",
    "costs.measured": "ringwright.costs.measured_costs",
    "costs.probable": "ringwright.costs.probable_time",
    "engines.beside": "ringwright.engines.background_programs",
    "engines.coded": "ringwright.engines.wire_width",
    "engines.crossed": "ringwright.engines.link_crossings",
    "engines.job.measured": "ringwright.engines.job.contention_factors",
    "engines.packets.added": "ringwright.engines.packets.loss_penalty",
    "engines.packets.together": "ringwright.engines.packets.concurrent_packets",
    "engines.pools.described": "ringwright.engines.pools.pool_machine",
    "engines.pools.expected": "ringwright.engines.pools.expected_losses",
    "engines.pools.hashed": "ringwright.engines.pools.hashed_pool",
    "engines.repeated": "ringwright.engines.repetitions",
    "engines.slots": "ringwright.engines.switch_slots",
    "engines.together": "ringwright.engines.concurrent_programs",
    "execute.greeting": "ringwright.execute.handshake",
    "execute.place": "ringwright.execute.rank_host",
    "execute.started": "ringwright.execute.rank_processes",
    "execute.switched.started": "ringwright.execute.switched.switch_process",
    "frameworks.told": "ringwright.graph.frameworks.framework_facts",
    "innetwork.redirected": "ringwright_lab.judges.redirected_sums",
    "lab": "ringwright_lab.network",
    "mixing": "ringwright.ground.hashing",
    "papers.by_name": "ringwright_lab.papers.paper_run",
    "pictures": "ringwright.reports.notebook",
    "reopened": "ringwright.ground.saved_trace",
    "reports.job_remedies": "ringwright.reports.steps.remedies",
    "reports.listed": "ringwright.reports.listing",
    "reports.probable": "ringwright.reports.calls.probable_times",
    "reports.recorded": "ringwright.reports.recording_summary",
    "reports.said_first": "ringwright.reports.headline",
    "reports.timed": "ringwright.reports.timed_tables",
    "rewrites.drawn": "ringwright.model.rewrites.random_order",
    "schedulers.decompose.lynx.put": "ringwright.schedulers.decompose.lynx.carry_out",
    "schedulers.decompose.oases.turns": "ringwright.schedulers.decompose.oases.half_order",
    "schedulers.decompose.t3.address_map": "ringwright_lab.judges.tile_addresses",
    "schedulers.decompose.t3.machine": "ringwright_lab.judges.tile_machine",
    "schedulers.decompose.t3.tracker": "ringwright_lab.judges.tile_tracker",
    "serve.opened": "ringwright.reports.serve.job_opening",
    "sources.beside": "ringwright.formats.sources.framework_lines",
    "sources.gathered": "ringwright.formats.sources.reader_rows",
    "sources.kineto.gather": "ringwright.formats.sources.kineto.event_batches",
    "sources.looks": "ringwright.formats.sources.other_files",
    "sources.missing": "ringwright.formats.sources.gate.missing_records",
    "sources.nccl_log.adding": "ringwright.formats.sources.nccl_log.switch_lines",
    "sources.nccl_log.careful": "ringwright.formats.sources.nccl_log.dirty_lines",
    "sources.nccl_log.joined": "ringwright.formats.sources.nccl_log.communicator_export",
    "sources.programs": "ringwright.formats.sources.programs.program_files",
    "sources.reached": "ringwright.formats.sources.gate.rank_progress",
    "sources.whole": "ringwright.formats.sources.gate.small_file",
    "sources.wrapped": "ringwright.formats.sources.gate.wrappers",
    "sources.xplane.executed": "ringwright.formats.sources.xplane.device_events",
    "sources.xplane.take": "ringwright.formats.sources.xplane.sorting",
    "steps": "ringwright.ground.stepwise",
    "studies": "ringwright.calls",
    "studies.answered_calls": "ringwright.calls.call_answer",
    "studies.asked": "ringwright.calls.provenance",
    "studies.bench.asked": "ringwright_lab.bench.entry",
    "studies.bench.calibrated": "ringwright_lab.bench.message_costs",
    "studies.drawn": "ringwright.calls.loss_seeds",
    "studies.executed": "ringwright.capture.rank_run",
    "studies.followed": "ringwright.calls.message_playback",
    "studies.in_switches": "ringwright.calls.switch_leases",
    "studies.jobs.accuracy": "ringwright.accuracy.jobs",
    "studies.jobs.aggregated": "ringwright.jobs.switch_gains",
    "studies.jobs.at_once": "ringwright.jobs.pricing.concurrent_operations",
    "studies.jobs.condensed": "ringwright.jobs.condensed_workload",
    "studies.jobs.ended": "ringwright.jobs.job_end",
    "studies.jobs.followed": "ringwright.engines.packets.operation_losses",
    "studies.jobs.generated": "ringwright.jobs.model_job",
    "studies.jobs.interrupted": "ringwright.jobs.outage_steps",
    "studies.jobs.known": "ringwright.jobs.pricing.cost_cache",
    "studies.jobs.least": "ringwright.jobs.step_bound",
    "studies.jobs.live": "ringwright_lab.live.on_ranks",
    "studies.jobs.measured": "ringwright.jobs.step_tables",
    "studies.jobs.modelled": "ringwright.jobs.model_step",
    "studies.jobs.passing": "ringwright.jobs.explained.outages",
    "studies.jobs.placed": "ringwright.calls.rank_placement",
    "studies.jobs.recorded": "ringwright.jobs.recorded_job",
    "studies.jobs.said_operations": "ringwright.jobs.pricing.verb_costs",
    "studies.jobs.traced": "ringwright.jobs.job_trace",
    "studies.jobs.whose": "ringwright.jobs.pricing.event_owners",
    "studies.jobs.written": "ringwright.jobs.workload_files",
    "studies.live": "ringwright.capture.live.following",
    "studies.neighbours": "ringwright.calls.other_jobs",
    "studies.provision.asked": "ringwright.advise.provision.question",
    "studies.provision.forms": "ringwright.advise.provision.parallel_forms",
    "studies.provision.sent": "ringwright.advise.provision.port_transfers",
    "studies.provision.sized": "ringwright.advise.provision.least_network",
    "studies.renumbered": "ringwright.calls.rank_permutation",
    "studies.seats": "ringwright.calls.switch_assignment",
    "studies.spelled": "ringwright.calls.arguments",
    "studies.synthesis": "ringwright.search",
    "studies.synthesis.carried": "ringwright.search.chunk_routes",
    "studies.synthesis.kept": "ringwright.search.program_cache",
    "studies.synthesis.seen": "ringwright.search.best_run",
    "studies.synthesis.together": "ringwright.search.concurrent_groups",
    "studies.synthesis.written": "ringwright.search.runtime_files",
    "studies.traced": "ringwright.calls.run_trace",
    "studies.unfolded": "ringwright.search.single_run",
    "survey.asked": "ringwright_lab.survey.survey_job",
    "survey.by_name": "ringwright_lab.survey.entry",
    "survey.listed": "ringwright_lab.survey.systems_list",
    "survey.measured": "ringwright_lab.survey.job_gains",
    "traced": "ringwright.model.run_tables",
    "workloads.recorded.alone": "ringwright.workloads.recorded.isolated_times",
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
