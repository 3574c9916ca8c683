"""DiLoCo with peers as threads of this process, compared with what it must equal."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import pccl  # noqa: E402
from conftest import PATIENCE_S, run_threads  # noqa: E402
from diloco_trainee import MODES, Trainee, kept, train_together, vector  # noqa: E402
from pccl.diloco import DiLoCo, Event, TopK, strided  # noqa: E402

PLAIN_SGD = {"lr": 1.0, "momentum": 0.0, "nesterov": False}
each_mode = pytest.mark.parametrize("mode", MODES)


def test_with_one_inner_step_and_plain_sgd_it_is_data_parallel_training(master: str) -> None:
    alone = Trainee(0)
    for step in range(25):
        alone.optimizer.zero_grad()
        ((alone.loss(step, 0) + alone.loss(step, 1)) / 2).backward()
        alone.optimizer.step()
    for trainee, _, _ in train_together(master, 2, 25, H=1, outer=PLAIN_SGD):
        assert torch.allclose(vector(trainee.model), vector(alone.model), rtol=0, atol=1e-6)


@pytest.mark.parametrize("members", [1, 2])
@each_mode
def test_every_outer_step_follows_from_the_pseudo_gradients(master: str, mode: str, members: int) -> None:
    """Recomputes the outer steps from what the members launched, with other code; bit for bit unless a transfer
    quantizes."""
    options = MODES[mode]
    fragments = options.get("fragments", 1)
    results = train_together(master, members, 5 * options["H"], **options)
    _, one, events = results[0]
    for _, other, _ in results:
        assert torch.equal(one.outer, other.outer) and torch.equal(one.momentum, other.momentum)
    outer, momentum = vector(Trainee(0).model).numpy(), numpy.zeros(one.outer.numel(), numpy.float32)
    mu, lr = numpy.float32(0.9), numpy.float32(0.7)
    launched = [[e.tensor.numpy() for e in of_member if e.kind == "launch"] for _, _, of_member in results]
    steps = [e for e in events if e.kind == "outer_step"]
    assert len(steps) == len(launched[0]) >= 4 * fragments
    exact, told = numpy.zeros_like(outer), numpy.zeros_like(outer)
    for *sent, step in zip(*launched, steps, strict=True):
        begin = step.fragment * outer.size // fragments
        part = slice(begin, begin + sent[0].size)
        average = sum(sent[1:], sent[0]) / numpy.float32(members)
        applied = step.tensor.numpy()
        if "quantize" in options and members > 1:
            exact[part] += average
            told[part] += applied
        else:
            assert (applied == average).all()
        m = momentum[part] = momentum[part] * mu + applied
        outer[part] -= (applied + m * mu) * lr
    assert (outer == one.outer.numpy()).all() and (momentum == one.momentum.numpy()).all()
    if isinstance(options.get("quantize"), TopK):
        return  # its rounding has tests of its own
    # With error feedback, rounding errors do not add up. In the ring those of each round may: half a step per hop.
    rounds = 1 if options.get("quantize") == "int8" else 5
    assert numpy.abs(exact - told).max() <= rounds * 0.02 * max(numpy.abs(sent).max() for sent in launched[0])
    assert [other.batches for _, other, _ in results] == [members * 5 * options["H"]] * members


def reference(mode: str, last_step: int) -> Any:
    """Outer parameters after two replicas trained as in the papers, in one process and in the order of their text."""
    period, fragments = MODES[mode]["H"], MODES[mode].get("fragments", 1)
    delay = MODES[mode].get("delay", period // fragments if MODES[mode].get("overlap") else 0)
    mix = 0.5 if 0 < delay < period else 0.0
    replicas = [Trainee(0), Trainee(1)]
    outer = vector(replicas[0].model).clone()
    momentum = torch.zeros_like(outer)
    cuts = [fragment * outer.numel() // fragments for fragment in range(fragments + 1)]
    averages: dict[int, Any] = {}

    def land(part: int, keep: float) -> None:
        inside = slice(cuts[part], cuts[part + 1])
        average = averages.pop(part)
        momentum[inside] = 0.9 * momentum[inside] + average
        outer[inside] -= 0.7 * (average + 0.9 * momentum[inside])
        give(inside, keep)

    def give(inside: slice, keep: float) -> None:
        for replica in replicas:
            own = vector(replica.model)
            own[inside] = keep * own[inside] + (1 - keep) * outer[inside]
            torch.nn.utils.vector_to_parameters(own, replica.model.parameters())

    for step in range(1, last_step + 1):
        for replica in replicas:
            replica.optimizer.zero_grad()
            replica.loss(step - 1).backward()
            replica.optimizer.step()
        learned = outer - sum(vector(replica.model) for replica in replicas) / 2
        for part in range(fragments):
            inside = slice(cuts[part], cuts[part + 1])
            offset = (part + 1) * period // fragments
            if delay > 0 and step % period == offset % period and part in averages:
                land(part, mix)
            elif delay == period and step % period == 0:
                give(inside, 0.0)
            if step % period == (offset - delay) % period:
                averages[part] = learned[inside].clone()
                if delay == 0:
                    land(part, 0.0)
    for part in list(averages):
        land(part, mix)
    return outer


@pytest.mark.parametrize("mode", [mode for mode in MODES if not {"quantize", "eager"} & MODES[mode].keys()])
def test_training_goes_as_in_the_papers(master: str, mode: str) -> None:
    last_step = 7 * MODES[mode]["H"]
    expected = reference(mode, last_step)
    start = vector(Trainee(0).model)
    for _, diloco, _ in train_together(master, 2, last_step, **MODES[mode]):
        difference = float((diloco.outer - expected).abs().max())
        assert difference <= 1e-5 * float((expected - start).abs().max()), difference


def test_fragments_may_be_lists_of_modules(master: str) -> None:
    """Each fragment is sent by itself; what is in none of them goes with the first."""

    def body(index: int) -> Any:
        trainee = Trainee(index)
        events: list[Event] = []
        parts = [[trainee.model[2]], ["0.weight"]]
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                H=4,
                min_peers=2,
                outer=PLAIN_SGD,
                fragments=parts,
                on_event=lambda event: events.append(kept(event)),
            )
            with diloco:
                trainee.train(diloco, 4)
        return trainee, diloco, events

    results = run_threads(2, body)
    first, second = Trainee(0), Trainee(1)
    order = ["0.bias", "2.weight", "2.bias"]
    sizes = [sum(dict(first.model.named_parameters())[name].numel() for name in order), first.model[0].weight.numel()]
    for trainee, diloco, events in results:
        launched = [event for event in events if event.kind == "launch"]
        assert [(event.inner_step, event.fragment, event.tensor.numel()) for event in launched] == [
            (2, 0, sizes[0]),
            (4, 1, sizes[1]),
        ]
        named = dict(trainee.model.named_parameters())
        assert torch.equal(diloco.outer, torch.cat([named[name].detach().reshape(-1) for name in [*order, "0.weight"]]))
        assert torch.equal(diloco.outer, results[0][1].outer)
    for step in range(4):
        for one in (first, second):
            one.optimizer.zero_grad()
            one.loss(step).backward()
            one.optimizer.step()
        if step == 1:  # the first fragment is averaged here
            for name in order:
                ours, theirs = (dict(one.model.named_parameters())[name] for one in (first, second))
                with torch.no_grad():
                    ours.copy_((ours + theirs) / 2)
                    theirs.copy_(ours)
    mean = (first.model[0].weight + second.model[0].weight) / 2
    assert torch.allclose(results[0][0].model[0].weight, mean, rtol=0, atol=1e-6)


def test_strided_fragments() -> None:
    blocks = [torch.nn.Linear(1, 1) for _ in range(5)]
    assert strided(blocks, 2) == [[blocks[0], blocks[2], blocks[4]], [blocks[1], blocks[3]]]
    for wrong in (0, 6):
        with pytest.raises(ValueError, match=f"{wrong} fragments of 5 blocks"):
            strided(blocks, wrong)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_eager_updates_go_as_in_the_paper(master: str, momentum: float) -> None:
    """The update of replica m after round t is that of arXiv 2502.12996: its own part of the average is that of this
    round, the parts of the others are those of the round before. Without momentum, that is the text of the paper; with
    it, the outer parameters are those of all averages so far, and one step more with the own part alone."""
    rounds, period, members, lr = 6, 4, 3, 0.7
    replicas = [Trainee(index) for index in range(members)]
    outer = vector(replicas[0].model).clone()
    speed = torch.zeros_like(outer)
    at = [outer.clone() for _ in replicas]
    before = [torch.zeros_like(outer) for _ in replicas]
    for turn in range(rounds):
        for replica in replicas:
            for step in range(turn * period, (turn + 1) * period):
                replica.optimizer.zero_grad()
                replica.loss(step).backward()
                replica.optimizer.step()
        learned = [at[m] - vector(replica.model) for m, replica in enumerate(replicas)]
        last = sum(before) / members
        if turn > 0:
            speed = momentum * speed + last
            outer = outer - lr * (last + momentum * speed if momentum else last)
        for m, replica in enumerate(replicas):
            if momentum:
                ahead = momentum * speed + learned[m] / members
                at[m] = outer - lr * (learned[m] / members + momentum * ahead)
            else:
                # Relative to where this replica stood, in the words of the paper.
                stood = outer + lr * last - lr * before[m] / members if turn > 0 else outer
                at[m] = stood - lr * ((learned[m] - before[m]) / members + last)
            torch.nn.utils.vector_to_parameters(at[m].clone(), replica.model.parameters())
        before = learned
    last = sum(before) / members
    speed = momentum * speed + last
    outer = outer - lr * (last + momentum * speed if momentum else last)
    results = train_together(
        master, members, rounds * period, H=period, overlap=True, eager=True, outer={"lr": lr, "momentum": momentum}
    )
    start = vector(Trainee(0).model)
    for _, diloco, _ in results:
        assert float((diloco.outer - outer).abs().max()) <= 1e-5 * float((outer - start).abs().max())
        assert torch.equal(diloco.outer, results[0][1].outer)


@each_mode
def test_the_result_of_training_is_the_outer_parameters(master: str, mode: str) -> None:
    results = train_together(master, 2, 10 * MODES[mode]["H"], **MODES[mode])
    for trainee, diloco, _ in results:
        assert torch.equal(vector(trainee.model), diloco.outer)
    before = sum(Trainee(0).loss(step).item() for step in range(900, 910))
    after = sum(results[0][0].loss(step).item() for step in range(900, 910))
    assert after < before / 2


@pytest.mark.parametrize("eager", [False, True])
def test_training_goes_on_from_the_outer_parameters_after_finish(master: str, eager: bool) -> None:
    """finish() drops what a peer learned since its last launch: it is in no later pseudo-gradient, and has no weight."""

    def body(index: int) -> list[Event]:
        trainee, events = Trainee(index), []
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                H=4,
                overlap=True,
                delay=4,
                eager=eager,
                weighted=True,
                min_peers=2,
                on_event=lambda event: events.append(kept(event)),
            )
            diloco.join()
            trainee.train(diloco, 10, lambda index, step: 3)
            diloco.finish()
            events.clear()
            saved = diloco.state_dict()
            assert not eager or torch.equal(saved["began"], saved["outer"])
            assert torch.equal(saved["local"], saved["outer"]) and saved["unsent"] == [0]
            trainee.optimizer.param_groups[0]["lr"] = 0.0
            trainee.train(diloco, 16, lambda index, step: 3)
            diloco.finish()
            ends[index] = diloco.batches
        return events

    ends = [0, 0]
    for events in run_threads(2, body):
        launched = [event.tensor for event in events if event.kind == "launch"]
        assert len(launched) == 2 and not any(tensor.any() for tensor in launched)
    # Each peer: 8 steps before the first finish(), and 2 and 4 after it.
    assert ends == [2 * 3 * (8 + 2 + 4)] * 2


@each_mode
def test_a_newcomer_stands_where_the_others_stand(master: str, mode: str) -> None:
    options = MODES[mode]
    lock = threading.Lock()
    states: dict[int, list[Any]] = {}
    begun = threading.Event()
    late_events: list[Event] = []

    def note(diloco: DiLoCo, event: Event, index: int) -> None:
        with lock:
            if index == 2:
                late_events.append(event)
            if event.kind == "outer_step":
                state = torch.cat([diloco.outer, diloco.momentum, torch.tensor([float(diloco.batches)])])
                states.setdefault(event.outer_step, []).append((kept(event).tensor, state))

    def body(index: int) -> int:
        trainee = Trainee(index, model_seed=index)
        with pccl.Communicator(master) as comm:
            diloco: DiLoCo
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                min_peers=2 if index < 2 else 1,
                on_event=lambda event: note(diloco, event, index),
                **options,
            )
            if index == 2:
                # The run has begun when a peer has made an outer step.
                begun.wait(PATIENCE_S)
            diloco.join()
            if index == 2:
                assert diloco.inner_step % options["H"] == 0 and diloco.inner_step > 0 and diloco.outer_step > 0
                assert torch.equal(vector(trainee.model), diloco.outer)
            # All see the third peer at the end of the same round.
            while diloco.world < 3:
                trainee.train(diloco, diloco.inner_step + options["H"])
                begun.set()
            trainee.train(diloco, diloco.inner_step + 5 * options["H"])
            diloco.finish()
        return diloco.batches

    batches = run_threads(3, body)
    assert len(set(batches)) == 1
    assert {len(seen) for seen in states.values()} == {2, 3}
    for step, seen in states.items():
        for average, state in seen:
            assert torch.equal(average, seen[0][0]) and torch.equal(state, seen[0][1]), step
    assert late_events[0].kind == "joined" and late_events[0].detail


@pytest.mark.parametrize(("quantize", "eager"), [(None, False), ("int8", False), (None, True)])
def test_what_a_newcomer_has_not_learned_does_not_count(master: str, quantize: str | None, eager: bool) -> None:
    """One step behind: the newcomer takes part in the average of what a member learned before it came, but that average
    is the member's alone. What it learns in its first round counts from where it began."""
    first_is_training, second_is_in = threading.Event(), threading.Event()
    launched: dict[tuple[int, int], Any] = {}
    applied: dict[int, Any] = {}
    learned: list[Any] = []

    def body(index: int) -> int:
        trainee = Trainee(index)

        def note(event: Event) -> None:
            if event.kind == "launch":
                launched[index, event.inner_step] = kept(event).tensor
            elif event.kind == "outer_step" and index == 1:
                applied[event.inner_step] = kept(event).tensor

        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(
                trainee.model,
                trainee.optimizer,
                comm,
                H=3,
                overlap=True,
                eager=eager,
                quantize=quantize,
                on_event=note,
            )
            if index == 1:
                first_is_training.wait(PATIENCE_S)
            diloco.join()
            begin = diloco.inner_step
            if index == 1:
                second_is_in.set()
                twin = Trainee(index)
                torch.nn.utils.vector_to_parameters(vector(trainee.model).clone(), twin.model.parameters())
                for step in range(begin, begin + 3):
                    twin.optimizer.zero_grad()
                    twin.loss(step).backward()
                    twin.optimizer.step()
                learned.append(vector(trainee.model).clone() - vector(twin.model))
                trainee.train(diloco, begin + 9)
                diloco.finish()
                return begin
            while not second_is_in.is_set() or diloco.world == 1:
                trainee.train(diloco, diloco.inner_step + 3)
                first_is_training.set()
            # Until the other peer has ended and this one is alone again.
            while diloco.world > 1:
                trainee.train(diloco, diloco.inner_step + 3)
            return 0

    begin = run_threads(2, body)[1]
    assert not launched[1, begin].any() and launched[0, begin].any()
    # With quantization, what is rounded away is sent later.
    code = 0.0 if quantize is None else float(launched[0, begin].abs().max()) / 63
    assert torch.allclose(applied[begin + 3], launched[0, begin], rtol=0, atol=1.01 * code)
    assert torch.allclose(launched[1, begin + 3], learned[0], rtol=0, atol=1e-6)
    both = (launched[0, begin + 3] + launched[1, begin + 3]) / 2
    assert torch.allclose(applied[begin + 6], both, rtol=0, atol=3 * code)


@each_mode
def test_a_run_that_resumes_from_its_checkpoints_goes_on_as_if_nothing_had_happened(mode: str) -> None:
    options = MODES[mode]
    middle, last = 5 * options["H"], 9 * options["H"]

    def trained(address: str, index: int, last_step: int, saved: dict[str, Any] | None) -> dict[str, Any]:
        trainee = Trainee(index, model_seed=index if saved else 0, momentum=0.5)
        with pccl.Communicator(address) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, min_peers=2, **options)
            if saved is not None:
                diloco.load_state_dict(saved["diloco"])
                trainee.optimizer.load_state_dict(saved["optimizer"])
            diloco.join()
            if saved is not None:
                assert diloco.inner_step == middle
            trainee.train(diloco, last_step)
            state = {"diloco": diloco.state_dict(), "optimizer": trainee.optimizer.state_dict()}
            diloco.finish()
        return {**state, "result": diloco.outer.clone()}

    def run(last_step: int, saved: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            address = f"127.0.0.1:{node.port}"
            return run_threads(2, lambda index: trained(address, index, last_step, saved[index] if saved else None))

    through = run(last)
    resumed = run(last, run(middle))
    for one, other in zip(through, resumed, strict=True):
        pairs = [(one["result"], other["result"]), (one["diloco"]["momentum"], other["diloco"]["momentum"])]
        for straight, later in pairs:
            if mode.endswith("_ring"):
                # Partial sums are rounded on the way, so the bytes depend on the order in the ring. Here it is a race.
                assert torch.allclose(straight, later, atol=0.02)
            else:
                assert torch.equal(straight, later)
        assert one["diloco"]["batches"] == other["diloco"]["batches"]


@pytest.mark.parametrize("mode", ["sync_int8", "one_step_behind_int8", "sync_top_k", "streaming_top_k"])
def test_a_rejected_peer_that_is_alone_keeps_its_residual(master: str, mode: str) -> None:
    options = MODES[mode]
    trainee = Trainee(0)
    events: list[Event] = []
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(
            trainee.model, trainee.optimizer, comm, max_norm=1e-9, on_event=lambda e: events.append(kept(e)), **options
        )
        state = diloco.state_dict()
        state["residual"].fill_(0.25)
        diloco.load_state_dict(state)
        with diloco:
            trainee.train(diloco, 2 * options["H"])
        kinds = [event.kind for event in events]
        assert "rejected" in kinds and "outer_step" not in kinds
        assert not any(event.tensor.any() for event in events if event.kind == "skipped")
        assert torch.equal(diloco.state_dict()["residual"], state["residual"])


@pytest.mark.parametrize("mode", ["one_step_behind", "streaming_full", "eager", "streaming_int8", "streaming_top_k"])
def test_a_checkpoint_that_was_loaded_can_be_saved_again_before_the_join(master: str, mode: str) -> None:
    options = MODES[mode]
    trainee = Trainee(0)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, **options)
        first = diloco.state_dict()
        diloco.join()
        trainee.train(diloco, 2 * options["H"])
        saved = diloco.state_dict()
    assert first["in_flight"] is None and saved["in_flight"] is not None
    other = Trainee(1, model_seed=1)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(other.model, other.optimizer, comm, **options)
        for state in (saved, first):
            diloco.load_state_dict(state)
            again = diloco.state_dict()
            assert again.keys() == state.keys()
            for key, content in again.items():
                if isinstance(content, torch.Tensor) and state[key] is not None:
                    assert torch.equal(content, state[key]), key
                else:
                    assert content is state[key] or content == state[key], key


def test_a_checkpoint_from_within_a_round_begins_the_round_again(master: str) -> None:
    trainee = Trainee(0)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(trainee.model, trainee.optimizer, comm, H=6, fragments=3, overlap=True, delay=1)
        diloco.join()
        trainee.train(diloco, 10)
        saved = diloco.state_dict()
    assert saved["in_flight"] is None and saved["inner_step"] == 10
    again = Trainee(0, model_seed=5)
    with pccl.Communicator(master) as comm:
        diloco = DiLoCo(again.model, again.optimizer, comm, H=6, fragments=3, overlap=True, delay=1)
        diloco.load_state_dict(saved)
        assert torch.equal(vector(again.model), vector(trainee.model))
        diloco.join()
        assert diloco.inner_step == 6 and torch.equal(diloco.outer, saved["outer"])
        again.train(diloco, 12)
        with pytest.raises(RuntimeError, match="before"):
            diloco.load_state_dict(saved)


@pytest.mark.parametrize("ahead", [0, 1000])
def test_a_checkpoint_of_another_time_is_replaced_by_the_run(master: str, ahead: int) -> None:
    """A checkpoint that is older than the run, or ahead of it. The members first refuse a peer that is ahead."""
    options: dict[str, Any] = {"H": 2, "overlap": True, "quantize": "int8"}
    ready, done = threading.Event(), threading.Event()
    saved: dict[str, Any] = {}

    def veteran() -> Any:
        trainee = Trainee(0)
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, **options)
            diloco.join()
            trainee.train(diloco, 4)
            saved.update(diloco.state_dict())
            assert saved["in_flight"].any()
            saved["revision"] += ahead
            saved["residual"].fill_(1.0)
            trainee.train(diloco, 10)
            ready.set()
            while not done.is_set():
                trainee.train(diloco, diloco.inner_step + 2)
        return None

    def newcomer() -> None:
        ready.wait(PATIENCE_S)
        trainee = Trainee(1, model_seed=1)
        events: list[Event] = []
        with pccl.Communicator(master) as comm:
            diloco = DiLoCo(trainee.model, trainee.optimizer, comm, on_event=lambda e: events.append(kept(e)), **options)
            diloco.load_state_dict(saved)
            diloco.join()
            done.set()
            # Nothing of the replaced state is left.
            assert [e.tensor.any() for e in events if e.kind == "launch"] == [False]
            assert not diloco.state_dict()["residual"].any()
            assert diloco.inner_step >= 10 and torch.equal(vector(trainee.model), diloco.outer)

    run_threads(2, lambda index: (veteran, newcomer)[index]())
