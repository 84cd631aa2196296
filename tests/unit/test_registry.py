"""@task, the registry, and arguments checked against the signature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_tenant_queue import task
from django_tenant_queue.exceptions import DuplicateTask, InvalidOption, InvalidPayload, NotBuiltYet, UnknownTask
from django_tenant_queue.registry import Registry, Task, cost_thousandths, registry


@pytest.fixture
def names() -> Iterator[None]:
    """Forget the tasks that a test registers."""
    before = set(registry.names())
    yield
    for name in set(registry.names()) - before:
        registry.discard(name)


def import_orders(upload_id: int, *, dry_run: bool = False) -> str:
    return f"{upload_id} {dry_run}"


def tagged(self: int, **tags: str) -> tuple[int, dict[str, str]]:
    return self, tags


def nothing() -> None: ...


pytestmark = pytest.mark.usefixtures("names")


def test_a_task_is_registered_under_its_path_and_can_be_called() -> None:
    made = task(queue="bulk", cost=2.5, max_retries=3, timeout=60, atomic=False)(import_orders)
    assert registry.get(f"{__name__}.import_orders") is made
    assert (made.queue, made.cost, made.max_retries, made.timeout_seconds, made.atomic, made.tenant_scoped) == (
        "bulk",
        2500,
        3,
        60,
        False,
        True,
    )
    assert made(7, dry_run=True) == "7 True"


def test_the_decorator_works_without_parentheses() -> None:
    made = task(import_orders)
    assert isinstance(made, Task)
    assert (made.queue, made.cost, made.max_retries) == ("default", 1000, None)


def test_one_name_is_one_function() -> None:
    task(name="mine")(import_orders)
    task(name="mine")(import_orders)  # a module imported twice
    with pytest.raises(DuplicateTask, match="'mine'"):
        task(name="mine")(nothing)


@pytest.mark.parametrize("name", ["os.system", "../../x", "x" * 10_240, "tests.unit.test_registry.import\u043erders", "", None, 5])
def test_an_unknown_name_is_refused_and_nothing_is_imported(name: Any) -> None:
    """H16, H15: os.system exists, and is no task."""
    task(import_orders)
    with pytest.raises(UnknownTask) as caught:
        registry.get(name)
    assert len(str(caught.value)) < 500


def test_a_near_miss_gets_a_suggestion() -> None:
    """H16."""
    task(import_orders)
    with pytest.raises(UnknownTask, match=r"Did you mean 'tests\.unit\.test_registry\.import_orders'"):
        registry.get("tests.unit.test_registry.import_order")


def bound(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return task(function).bind(args, kwargs)


def test_positional_and_keyword_arguments_become_the_same_payload() -> None:
    """H10."""
    assert bound(import_orders, 7, dry_run=True) == bound(import_orders, dry_run=True, upload_id=7) == {"upload_id": 7, "dry_run": True}
    assert list(bound(import_orders, dry_run=True, upload_id=7)) == ["upload_id", "dry_run"]


def test_no_arguments_are_an_empty_payload() -> None:
    """H10."""
    assert bound(nothing) == {}


def test_a_default_is_left_to_the_function() -> None:
    """H10: a default that changes with a deploy is the new one for jobs enqueued before."""
    assert bound(import_orders, 7) == {"upload_id": 7}


def test_a_parameter_named_self_and_free_keywords_are_arguments_like_others() -> None:
    """H10."""
    assert bound(tagged, 1, args="x", kwargs="y") == {"self": 1, "args": "x", "kwargs": "y"}
    assert tagged(**bound(tagged, 1, colour="red")) == (1, {"colour": "red"})


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "upload_id"),
        ((7, True), {}, "too many positional"),
        ((7,), {"dryrun": True}, "dryrun"),
        ((7,), {"upload_id": 8}, "upload_id"),
    ],
    ids=["missing", "too many", "unknown", "twice"],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(args: tuple[Any, ...], kwargs: dict[str, Any], reason: str) -> None:
    """H10."""
    with pytest.raises(InvalidPayload) as caught:
        bound(import_orders, *args, **kwargs)
    assert reason in caught.value.reason
    assert "import_orders(upload_id: " in caught.value.reason


def test_a_stored_payload_is_checked_again_at_run_time() -> None:
    """H10: the signature changed with a deploy; the same check names what is missing."""
    with pytest.raises(InvalidPayload, match="upload_id"):
        task(import_orders).bind((), {"upload": 7})


def variadic(*ids: int) -> None: ...


def positional(upload_id: int, /) -> None: ...


@pytest.mark.parametrize("function", [variadic, positional])
def test_a_parameter_that_has_no_name_is_refused_at_decoration(function: Any) -> None:
    """H10."""
    with pytest.raises(InvalidOption, match="cannot be passed by name"):
        task(function)


@pytest.mark.parametrize(
    "options",
    [{"cost": 0}, {"cost": 1001}, {"cost": True}, {"cost": "1"}, {"cost": float("nan")},
     {"max_retries": -1}, {"max_retries": 1.5}, {"max_retries": True},
     {"timeout": 0}, {"timeout": -1}, {"timeout": float("inf")}, {"timeout": True}, {"name": "x" * 201}, {"name": "a\nb"}],
    ids=str,
)  # fmt: skip
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        task(**options)(import_orders)
    assert caught.value.option in options


@pytest.mark.parametrize(
    "options", [{"unique": True}, {"require_idempotency_key": True}, {"permission": "x"}, {"authorize": print}], ids=str
)
def test_an_option_that_is_not_built_yet_says_so(options: dict[str, Any]) -> None:
    with pytest.raises(NotBuiltYet, match=next(iter(options))):
        task(**options)


async def later() -> None: ...


def test_an_asynchronous_task_is_not_built_yet() -> None:
    with pytest.raises(NotBuiltYet, match="later"):
        task(later)


def test_a_local_function_needs_a_name() -> None:
    def local() -> None: ...

    with pytest.raises(InvalidOption, match="module level"):
        task(local)
    assert task(name="given")(local).name == "given"


@pytest.mark.parametrize(("cost", "thousandths"), [(1, 1000), (0.001, 1), (1000, 1_000_000), (0.3333, 333)])
def test_cost_is_counted_in_thousandths(cost: float, thousandths: int) -> None:
    assert cost_thousandths(cost) == thousandths


def test_registries_are_apart() -> None:
    assert Registry().names() == ()
