"""The options of `eo-kafka run` that name the job, so that it can be asked of from elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import OptionsError
from ...state.ledger.job import LEDGER, PREFIX, STATE, WEAK_REPLICATION, read_job
from ..shared.command_line import job_connection
from ..shared.job_function import pairs
from .control import ControlledOrders
from .orders import Orders

_OF_JOB = {option.name for option in (LEDGER, STATE, PREFIX, WEAK_REPLICATION)}


@dataclass(frozen=True)
class Controlled:
    """`options` are the sink's, as far as they concern the job's topics. Its repr shows no
    secret."""

    job: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Controlled({self.job!r})"


def add_control(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "--job",
        dest="job_name",
        metavar="NAME",
        help="the job's name (option jobName): obey 'eo-kafka job suspend | resume | restart | "
        "cancel NAME'; of several supervisors of one job, one runs it and the others stand by",
    )
    parser.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT,...", help="the job's Kafka, for --job"
    )
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        help="client settings for --job, a name=value each line, as the options 'kafka.<name>'",
    )
    parser.add_argument(
        "--job-options",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help=f"of the job's options, for --job: {', '.join(sorted(_OF_JOB))}",
    )


def read_control(arguments: argparse.Namespace) -> Controlled | None:
    """What they say; None without --job. Raises OptionsError."""
    given = (arguments.bootstrap_servers, arguments.client_config, arguments.job_options)
    if not arguments.job_name:
        if any(given):
            told = "--bootstrap-servers, --client-config and --job-options"
            raise OptionsError([f"{told} are for --job, which is not given."])
        return None
    kafka = job_connection(arguments)
    options = pairs(arguments.job_options, "--job-options")
    if unknown := sorted(options.keys() - _OF_JOB):
        known = ", ".join(sorted(_OF_JOB))
        raise OptionsError(
            [f"--job-options takes {known}, and {name} is none." for name in unknown]
        )
    options |= kafka
    read_job(arguments.job_name, options)  # whether all of it is right
    return Controlled(arguments.job_name, options)


def orders_of(control: Controlled | None) -> Orders:
    """Joins the election. Raises EnvironmentRefused."""
    if control is None:
        return Orders()
    from ..control.seat import Seat

    return ControlledOrders(Seat(read_job(control.job, control.options)), control.options)
