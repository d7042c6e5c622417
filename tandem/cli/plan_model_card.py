"""tandem plan model-card"""

from typing import Annotated

import typer

from tandem.cli.failure import CliError, Exit


def model_card(
    profile: Annotated[
        str,
        typer.Argument(metavar="DEVICE/MODEL", help="Such as h200-sxm/deepseek-r1; ?tp=8&ep=8 for that layout alone."),
    ],
    gpus: Annotated[int, typer.Option(metavar="N", min=1, help="How many there are, in one node.")] = 8,
    answers: Annotated[float, typer.Option(metavar="N", min=1, help="Mean answer of the ranking, in tokens.")] = 5000,
    as_json: Annotated[bool, typer.Option("--json", help="The card as JSON.")] = False,
) -> None:
    """
    Show what a model is made of, and what each layout of it costs.

    Total and active parameters, weights and KV on each GPU with their copies,
    what the GPUs of an engine send each other in a step, and which layouts
    would answer most. Figures of a model.

    Example:

      tandem plan model-card h200-sxm/deepseek-r1
    """
    import orjson

    from loadgen.failure import LoadgenError
    from loadgen.plan.card.card import card_of
    from loadgen.plan.card.ranking import ranking
    from loadgen.plan.card.show import document, show
    from loadgen.report.terminal import terminal

    try:
        card = card_of(profile, gpus)
        ranked = ranking(card, gpus, answers)
    except LoadgenError as error:
        raise CliError(Exit.USAGE, str(error)) from None
    if as_json:
        print(orjson.dumps(document(card, ranked, answers), option=orjson.OPT_INDENT_2).decode())
        return
    show(card, ranked, answers, terminal())
