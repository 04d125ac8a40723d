"""Continuous batching: whoever joins, leaves or waits, each request's answer is the one it gets alone."""

import random
from itertools import count

import pytest
from engine_fakes import PlannedDrafter, compiled, make_stepper, result_of

from outrider.backends.prefill import PIECE
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.pace import Pace
from outrider.engine.scheduler import Scheduler, run
from outrider.engine.sequence import Request, SpeculationParams
from outrider.errors import NumericalError, UsageError
from outrider.sampling import SamplingParams

TARGET = HashLM(vocab_size=11, seed=3)
ALIKE = (1, 5, 2, 8, 3, 3, 9, 1, 0, 7, 4, 4, 2, 6, 10, 5, 1, 2, 3, 4, 5, 6, 7)


def draft_model():
    return DraftModelDrafter(ToyBackend(HashLM(11, seed=3), 4096), vocab_size=11, name="model")


def cascade():
    return CascadeDrafter(
        [Member(draft_model(), PassCosts().in_units_of(1 / 0.3)), Member(NgramDrafter())], vocab_size=11
    )


DRAFTERS = {"none": lambda: None, "model": draft_model, "cascade": cascade}


def make_request(number, prompt, **settings):
    wish = settings.pop("speculation", SpeculationParams())
    params = SamplingParams(**{"max_tokens": 9, **settings})
    return Request(number, tuple(prompt), compiled(params, 11), seed=number, speculation=wish)


def alone(request, **options):
    ((*_, (sequence, _)),) = [list(run(make_stepper(TARGET, **options), [request], max_sequences=1, clock=clock()))]
    return result_of(sequence)


def clock():
    ticks = count()
    return lambda: float(next(ticks))


def random_request(rng, number):
    prompt = [rng.randrange(11) for _ in range(rng.choice([1, 2, 9, 40, 700]))]
    prompt = [*ALIKE[: rng.randrange(len(ALIKE))], *prompt] if rng.random() < 0.5 else prompt
    seeded = {"temperature": 1.0, "seed": number} if rng.random() < 0.5 else {}
    wish = SpeculationParams(rng.choice([None, 0, 1, 3]))
    settings = {"max_tokens": rng.randrange(1, 30), "prompt_logprobs": rng.choice([None, None, 0]), **seeded}
    return make_request(number, prompt, speculation=wish, **settings)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("limit", [None, 1024])
def test_a_text_does_not_depend_on_what_else_runs(drafter, limit):
    rng = random.Random(f"{drafter} {limit}")
    stepper = make_stepper(TARGET, drafter=DRAFTERS[drafter](), k=4, max_length=1024)
    scheduler = Scheduler(stepper, max_sequences=5, clock=clock(), max_cached_tokens=limit, keeps_prefixes=True)
    requests = {number: random_request(rng, number) for number in range(24)}
    coming, answered, gone = list(requests.values()), {}, set()
    while coming or scheduler.num_waiting or scheduler.num_live:
        for _ in range(min(len(coming), rng.choice([0, 0, 1, 4]))):
            scheduler.submit(coming.pop(0))
        if rng.random() < 0.1:
            gone.add(rng.choice(list(requests)))
            scheduler.cancel(max(gone))
        for sequence, _ in scheduler.step():
            assert sequence.error is None
            assert sequence.draft_problem is None
            if sequence.finish_reason is not None:
                answered[sequence.request.request_id] = sequence
        assert limit is None or scheduler.num_live == 1 or scheduler.num_cached_tokens <= limit
    assert len(answered) >= 12
    for number, sequence in answered.items():
        assert result_of(sequence) == alone(requests[number], max_length=1024), number
        assert (sequence.prompt_logprobs is None) == (sequence.params.prompt_logprobs is None)
    scheduler.close()
    assert not stepper.target._caches


def test_a_long_prompt_is_read_between_the_rounds_of_the_others():
    stepper = make_stepper(TARGET)
    scheduler = Scheduler(stepper, max_sequences=8, clock=clock())
    for number in range(4):
        scheduler.submit(make_request(number, [number], max_tokens=400))
    scheduler.step()
    scheduler.submit(make_request(9, [1, 2] * 1000, max_tokens=1))
    rounds = 0
    while True:
        progress = {sequence.request.request_id: tokens for sequence, tokens in scheduler.step()}
        assert all(len(progress[number]) == 1 for number in range(4))  # none misses a round
        rounds += 1
        if 9 in progress:
            break
    assert rounds > 2000 / PIECE
    scheduler.close()


def test_rounds_that_read_are_stretched_no_more_than_asked():
    pace = Pace()
    assert pace.budget == 8  # until it is known what reading takes
    for _ in range(5):
        pace.observe(1.0, 0, 2)
    pace.observe(0.9, 8, 0)  # by chance
    assert pace.budget <= 32
    for _ in range(50):
        pace.observe(1.0, 8, 0)  # reading that costs nothing
    assert pace.budget == PIECE
    for _ in range(50):
        pace.observe(1.0, 0, 2)
    assert pace.budget == 12  # of the next prompt, which may be unlike the last
    pace.observe(1.5, 16, 2)
    assert pace.budget <= 20
    for number in range(50):
        pace.observe(1.0 if number % 10 else 9.0, 0, 2)  # some rounds are disturbed
        pace.observe(1.0 + 0.02 * (pace.budget + 6), pace.budget, 8)
    assert pace.round_s == 1.0
    assert 38 <= pace.budget <= 40  # what four fifths of a round take
    assert 68 <= pace.rows(4) <= 70
    assert pace.draft_tokens(4, 500) == (pace.rows(4) - 8) // 4
    assert pace.draft_tokens(4, 0) == pace.rows(4) // 4  # where nothing is read
    assert pace.draft_reading == pace.budget  # for all drafts together
    for _ in range(50):
        pace.observe(1.0 + 0.5 * pace.budget, pace.budget, 0)
    assert pace.budget == 8  # it must get on, too
    assert (pace.draft_tokens(4, 500), pace.rows(4)) == (1, 12)
    assert pace.draft_reading == 16
    for _ in range(50):
        pace.observe(3.0, 0, 9)  # longer drafts for all make longer rounds, and those make room for longer ones
    assert (pace.draft_tokens(4, 0), pace.rows(4)) == (3, 12)


def test_first_rounds_that_take_long_do_not_let_readers_take_long():
    pace = Pace()
    for seconds in (8.0, 9.0):
        pace.observe(seconds, 0, 2)
    assert pace.round_s == 8.0
    pace.observe(3.0, 16, 2)
    assert pace.round_s == 3.0
    pace.observe(5.0, 16, 2)
    assert pace.round_s == 3.0
    for _ in range(4):
        pace.observe(2.0, 0, 2)
    assert pace.round_s == 2.0  # the median of seven
    pace.observe(1.0, 16, 2)
    assert pace.round_s == 2.0


def test_drafts_are_bounded_before_anything_has_been_read():
    pace = Pace()
    assert pace.draft_tokens(2, 0) == 5
    for _ in range(9):
        pace.observe(1.0, 0, 4)
    assert pace.draft_tokens(2, 0) == 11  # by the first guess
    assert pace.draft_tokens(40, 0) == 1


def test_a_cancelled_request_leaves_at_once_and_nothing_of_it_stays():
    drafter = draft_model()
    stepper = make_stepper(TARGET, drafter=drafter, k=3)
    scheduler = Scheduler(stepper, max_sequences=1, clock=clock())
    scheduler.submit(make_request(1, [1], max_tokens=100))
    scheduler.submit(make_request(2, [2], max_tokens=100))
    scheduler.submit(make_request(3, [3], max_tokens=2))
    scheduler.step()
    scheduler.step()
    scheduler.cancel(1)
    scheduler.cancel(2)
    scheduler.cancel("unknown")
    assert not stepper.target.length(next(iter(stepper.target._caches)))  # that of 3, which has not begun
    assert len(stepper.target._caches) == 1
    assert not drafter._caches
    assert {sequence.request.request_id for sequence, _ in scheduler.step()} == {3}
    scheduler.close()


class Counting(ToyBackend):
    num_fed = 0

    def forward(self, batch):
        self.num_fed += sum(len(rows.token_ids) for rows in batch)
        return super().forward(batch)


def finish(scheduler):
    ended = {}
    while scheduler.num_waiting or scheduler.num_live:
        for sequence, _ in scheduler.step():
            ended[sequence.request.request_id] = sequence
    return ended


def counting_scheduler(**options):
    target = Counting(TARGET, 600)
    stepper = make_stepper(TARGET)
    stepper = type(stepper)(target, 11, frozenset(), stepper.detokenizer)
    return target, Scheduler(stepper, clock=clock(), **{"max_sequences": 4, "keeps_prefixes": True, **options})


def test_what_prompts_begin_with_is_read_once():
    target, scheduler = counting_scheduler()
    for number in range(4):
        scheduler.submit(make_request(number, [*range(11)] * 40 + [number], max_tokens=1))
    finish(scheduler)
    assert target.num_fed == 440 + 4


def test_the_next_turn_of_a_chat_reads_only_what_is_new():
    target, scheduler = counting_scheduler()
    scheduler.submit(make_request(1, [*range(11)] * 10, max_tokens=20))
    answer = finish(scheduler)[1]
    fed = target.num_fed
    scheduler.submit(make_request(2, [*answer.token_ids, 4, 4], max_tokens=1))
    finish(scheduler)
    assert target.num_fed - fed == 3  # the last of the answer, which had not been fed, and two more


def test_the_draft_of_the_next_turn_reads_only_what_is_new_and_is_the_same():
    drafts = Counting(TARGET, 600)
    drafter = DraftModelDrafter(drafts, vocab_size=11, name="model")
    stepper = make_stepper(TARGET, drafter=drafter, k=3)
    scheduler = Scheduler(stepper, max_sequences=4, clock=clock(), keeps_prefixes=True)
    scheduler.submit(make_request(1, [*range(11)] * 10, max_tokens=20))
    answer = finish(scheduler)[1]
    fed = drafts.num_fed
    turn = make_request(2, [*answer.token_ids, 4, 4], max_tokens=9)
    scheduler.submit(turn)
    again = finish(scheduler)[2]
    assert drafts.num_fed - fed < 4 + 3 + 3 * 9  # a few tokens of the last round, the new ones, and drafting
    assert result_of(again) == alone(turn)
    beside = list(run(stepper, [make_request(3, [4], max_tokens=3)], max_sequences=1, clock=clock()))
    assert beside
    assert drafter.num_held([*turn.prompt_ids, 4]) >= len(turn.prompt_ids)  # whoever keeps nothing lets others keep
    scheduler.close()
    assert not drafts._caches


def test_those_that_outgrow_the_caches_wait_and_go_on():
    stepper = make_stepper(TARGET, max_length=60)
    scheduler = Scheduler(stepper, max_sequences=4, clock=clock(), max_cached_tokens=60)
    requests = [make_request(number, [number] * 5, max_tokens=50) for number in range(4)]
    for request in requests:
        scheduler.submit(request)
    seen, most = {}, 0
    while scheduler.num_waiting or scheduler.num_live:
        for sequence, _ in scheduler.step():
            seen[sequence.request.request_id] = sequence
        most = max(most, scheduler.num_cached_tokens)
    assert most <= 60
    for request in requests:
        assert result_of(seen[request.request_id]) == alone(request, max_length=60)


def test_a_prompt_whose_cache_is_freed_while_it_is_looked_at_is_looked_at_again():
    stepper = make_stepper(TARGET, max_length=400)
    scheduler = Scheduler(stepper, max_sequences=2, clock=clock(), max_cached_tokens=400)
    prompt = [place * place % 11 for place in range(394)]
    scheduler.submit(make_request(0, [3, 1], max_tokens=30))
    asked = make_request(1, prompt, max_tokens=2, prompt_logprobs=1)
    sequence = scheduler.submit(asked)
    while not (is_freed := scheduler.num_waiting):
        scheduler.step()
    assert is_freed
    assert not sequence.is_new or sequence.prompt_logprobs == [None]
    told = finish(scheduler)[1]
    ((*_, (expected, _)),) = [list(run(make_stepper(TARGET, max_length=400), [asked], max_sequences=1, clock=clock()))]
    assert told.prompt_logprobs == expected.prompt_logprobs
    assert result_of(told) == result_of(expected)


def test_a_bound_that_one_request_may_break_is_refused():
    with pytest.raises(UsageError, match="max_cached_tokens is 59; one request may take 60"):
        Scheduler(make_stepper(TARGET, max_length=60), max_sequences=1, clock=clock(), max_cached_tokens=59)


@pytest.mark.parametrize("problem", [MemoryError(), NumericalError("a row"), ZeroDivisionError("a bug")])
def test_what_one_request_breaks_ends_that_request_only(problem):
    class Fragile(ToyBackend):
        def forward(self, batch):
            if any(self._caches[rows.sequence_id][:1] == [7] for rows in batch):
                raise problem
            return super().forward(batch)

    plain = make_stepper(TARGET)
    stepper = type(plain)(Fragile(TARGET), 11, frozenset(), plain.detokenizer)
    scheduler = Scheduler(stepper, max_sequences=4, clock=clock())
    requests = [make_request(number, [number, 1], max_tokens=12) for number in (5, 6, 7, 8)]
    for request in requests:
        scheduler.submit(request)
    ended = finish(scheduler)
    assert [ended[number].finish_reason for number in (5, 6, 7, 8)] == ["length", "length", "error", "length"]
    for request in requests:
        if request.request_id != 7:
            assert result_of(ended[request.request_id]) == alone(request)
    assert not stepper.target._caches


def test_a_failure_frees_what_is_kept_which_may_be_all_that_it_takes():
    class Full(ToyBackend):
        def forward(self, batch):
            if drafts._caches and not self.has_failed:
                self.has_failed = True
                raise MemoryError
            return super().forward(batch)

        has_failed = False

    drafts = ToyBackend(TARGET)
    drafter = DraftModelDrafter(drafts, vocab_size=11, name="model")
    plain = make_stepper(TARGET)
    stepper = type(plain)(Full(TARGET), 11, frozenset(), plain.detokenizer, drafter, 3)
    scheduler = Scheduler(stepper, max_sequences=1, clock=clock(), keeps_prefixes=True)
    stepper.target.has_failed = True
    scheduler.submit(make_request(1, [*range(11)] * 5, max_tokens=9))
    finish(scheduler)
    assert len(drafts._caches) == 1
    stepper.target.has_failed = False
    scheduler.submit(make_request(2, [3], max_tokens=1))
    assert finish(scheduler)[2].finish_reason == "error"
    assert not drafts._caches


def test_each_request_has_its_own_draft_length_rule_and_drafter():
    asked = []

    class Spy(PlannedDrafter):
        def propose(self, requests):
            asked.extend((request.request_id, request.max_tokens) for request in requests)
            return super().propose(requests)

    members = [Member(Spy(lambda context: [1, 2, 3])), Member(PlannedDrafter(lambda context: [4]))]
    members[1].drafter.name = "other"
    stepper = make_stepper(TARGET, drafter=CascadeDrafter(members, vocab_size=11), k=3)
    scheduler = Scheduler(stepper, max_sequences=9, clock=clock())
    wishes = [SpeculationParams(0), SpeculationParams(2), SpeculationParams(None, "other"), SpeculationParams()]
    for number, wish in enumerate(wishes):
        scheduler.submit(make_request(number, [number, 5], max_tokens=20, speculation=wish))
    coupled = SpeculationParams(rule="coupled")
    scheduler.submit(make_request(4, [4], max_tokens=9, temperature=1.0, speculation=coupled))
    ended = finish(scheduler)
    assert {number for number, _ in asked} == {1, 3, 4}
    assert max(limit for number, limit in asked if number == 1) == 2
    assert list(ended[4].counters.methods) == ["coupled"]


def test_what_is_drafted_beside_a_prompt_that_is_read_leaves_room_for_it(monkeypatch):
    monkeypatch.setattr(Pace, "_tokens", lambda pace, stretch, **_: 14)
    drafter = DraftModelDrafter(ToyBackend(TARGET, 4096), vocab_size=11, name="model")
    stepper = make_stepper(TARGET, drafter=drafter, k=8)
    scheduler = Scheduler(stepper, max_sequences=4, clock=clock())
    sizes, forward = [], stepper.target.forward
    monkeypatch.setattr(stepper.target, "forward", lambda batch: sizes.append(sizes_of(batch)) or forward(batch))
    requests = [make_request(number, [number, 3], max_tokens=300) for number in range(2)]
    requests.append(make_request(2, [1, 2] * 300, max_tokens=200))
    for request in requests:
        scheduler.submit(request)
    ended = finish(scheduler)
    reading = [(drafted, read) for drafted, read in sizes if read]
    assert max(drafted for drafted, read in sizes) == 8  # of the last request, when it is alone
    assert len(reading) > 600 / 14
    assert all(drafted <= 2 * 3 and drafted + read <= 14 for drafted, read in reading[1:])
    assert min(read for _, read in reading[1:-1]) >= 8
    for request in requests:
        assert result_of(ended[request.request_id]) == alone(request)


def sizes_of(batch):
    """Return how many tokens are drafted in a pass, and how many are read without looking at their logits."""
    drafted = sum(rows.num_logits - 1 for rows in batch if rows.num_logits)
    return drafted, sum(len(rows.token_ids) for rows in batch if not rows.num_logits)


def test_the_drafter_reads_a_long_prompt_between_the_rounds_of_the_others_too(monkeypatch):
    monkeypatch.setattr(Pace, "budget", 40)

    class Spy(ToyBackend):
        widest = 0

        def forward(self, batch):
            self.widest = max(self.widest, sum(len(rows.token_ids) for rows in batch))
            return super().forward(batch)

    backend = Spy(TARGET, 4096)
    drafter = DraftModelDrafter(backend, vocab_size=11, name="model")
    stepper = make_stepper(TARGET, drafter=drafter, k=3)
    scheduler = Scheduler(stepper, max_sequences=4, clock=clock())
    requests = [make_request(0, [1], max_tokens=300), *(make_request(n, [n, 2] * 300, max_tokens=200) for n in (1, 2))]
    for request in requests:
        scheduler.submit(request)
    ended = finish(scheduler)
    assert backend.widest == 40  # both prompts together
    backend.widest = 0
    list(run(stepper, requests, max_sequences=4, clock=clock()))
    assert backend.widest == PIECE  # where nobody reads along
    assert all(ended[number].counters.num_drafts > 0 for number in (1, 2))
    for request in requests:
        assert result_of(ended[request.request_id]) == alone(request)


def test_drafts_of_several_are_bounded_where_somebody_waits_and_as_asked_for_where_not(monkeypatch):
    monkeypatch.setattr(Pace, "draft_tokens", lambda self, count, num_read: 1)

    def per_round(answers):
        return [one.counters.num_draft_tokens / one.counters.num_drafts for one in answers]

    requests = [make_request(number, [1, 2], max_tokens=30) for number in range(2)]
    awaited = Scheduler(make_stepper(TARGET, drafter=draft_model(), k=3), max_sequences=2, clock=clock())
    for request in requests:
        awaited.submit(request)
    assert max(per_round(finish(awaited).values())) <= 1.2  # the last to go has the rounds for itself
    stepper = make_stepper(TARGET, drafter=draft_model(), k=3)
    ended = {sequence for sequence, _ in run(stepper, requests, max_sequences=2, clock=clock())}
    assert min(per_round(ended)) > 2


def test_nobody_begins_with_what_a_request_that_failed_has_left():
    class Failing(ToyBackend):
        num_passes, forks = 0, 0

        def forward(self, batch):
            self.num_passes += 1
            if self.num_passes == 2:
                raise ZeroDivisionError("in the midst of a round")
            return super().forward(batch)

        def fork(self, sequence_id):
            self.forks += 1
            return super().fork(sequence_id)

    plain = make_stepper(TARGET)
    stepper = type(plain)(Failing(TARGET), 11, frozenset(), plain.detokenizer)
    scheduler = Scheduler(stepper, max_sequences=1, clock=clock())
    for number in (1, 2):
        scheduler.submit(make_request(number, ALIKE))
    ended = finish(scheduler)
    assert [ended[number].finish_reason for number in (1, 2)] == ["error", "length"]
    assert stepper.target.forks == 0
