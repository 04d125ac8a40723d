"""Wrong variants of the rule for candidates of one token, each with the way of drawing that it is wrong for."""

from fractions import Fraction

from trees import drawn, drawn_again, likeliest

from outrider.verification.token import residual


def siblings(renormalise=True, reduce=True, update=True, recover=None, order=lambda token_ids, drafted: token_ids):
    """Return the rule with a part replaced; right as it stands, for candidates drawn without replacement."""

    def rule(token_ids, drafted, target, coins, *, with_replacement):
        start = target
        for token_id in order(token_ids, drafted):
            if coins.accept(target[token_id], drafted[token_id]):
                return token_id, True
            left = residual(target, drafted)
            target = left / left.sum() if update else target
            if reduce:
                drafted = drafted.copy()
                drafted[token_id] = Fraction(0)
                drafted = drafted / drafted.sum() if renormalise and drafted.sum() > 0 else drafted
        return coins.draw(recover(start, target, drafted) if recover else target), False

    return rule


def one_coin_for_all_siblings(token_ids, drafted, target, coins, *, with_replacement):
    """Given that one uniform failed the highest ratio so far, it passes the next with what is above that."""
    failed = Fraction(0)
    for token_id in token_ids:
        ratio = min(Fraction(1), target[token_id] / drafted[token_id])
        if coins.accept(max(ratio - failed, Fraction(0)), 1 - failed):
            return token_id, True
        failed = max(failed, ratio)
        left = residual(target, drafted)
        target = left / left.sum()
        drafted = drafted.copy()
        drafted[token_id] = Fraction(0)
        drafted = drafted / drafted.sum() if drafted.sum() > 0 else drafted
    return coins.draw(target), False


def no_renormalisation_of_a_rejected_point_mass(token_ids, drafted, target, coins, *, with_replacement):
    left = target.copy()
    for token_id in token_ids:
        if coins.accept(target[token_id], 1):
            return token_id, True
        left[token_id] = Fraction(0)
    return coins.draw(left if left.sum() > 0 else target), False


def forgets_to_exclude_a_rejected_point_mass(token_ids, drafted, target, coins, *, with_replacement):
    token_id = coins.draw(target)
    return (token_id, True) if token_id in token_ids else (coins.draw(target), False)


def drops_unlikely(law, width, coins):
    token_ids, _law = drawn(law, width, coins)
    return [token_id for token_id in token_ids if law[token_id] > Fraction(15, 100)], law


MUTANTS = {
    "verifies against the law that was not renormalised": (siblings(renormalise=False), drawn),
    "verifies without replacement as if with it": (siblings(reduce=False), drawn),
    "verifies with replacement as if without it": (siblings(), drawn_again),
    "merges equal candidates that were drawn": (
        siblings(reduce=False, order=lambda token_ids, drafted: list(dict.fromkeys(token_ids))),
        drawn_again,
    ),
    "holds every candidate against the target's own law": (siblings(update=False), drawn),
    "recovers from the target's law": (siblings(recover=lambda start, target, drafted: start), drawn),
    "recovers from the last residual but one": (
        siblings(update=False, recover=lambda start, target, drafted: residual(start, drafted)),
        drawn,
    ),
    "verifies the likeliest first": (
        siblings(order=lambda token_ids, drafted: sorted(token_ids, key=lambda token_id: -drafted[token_id])),
        drawn,
    ),
    "verifies in reverse order": (siblings(order=lambda token_ids, drafted: token_ids[::-1]), drawn),
    "tells a law of candidates that were chosen": (siblings(), likeliest),
    "drops unlikely candidates and tells their law": (siblings(), drops_unlikely),
    "holds all candidates against one coin": (one_coin_for_all_siblings, drawn),
    "does not renormalise after a rejected point mass": (no_renormalisation_of_a_rejected_point_mass, likeliest),
    "does not exclude a rejected point mass": (forgets_to_exclude_a_rejected_point_mass, likeliest),
}
