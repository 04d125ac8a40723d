from benchmarks.texts import PROMPTS, by_family, family_texts, pick, read_prompts


def test_the_prompts_of_the_repository():
    prompts = read_prompts(PROMPTS)
    assert len(prompts) == 100
    assert len({prompt.id for prompt in prompts}) == 100
    assert {family: len(group) for family, group in by_family(prompts).items()}["humaneval"] == 41
    assert len(pick(prompts, 6)) == 42
    assert all(len(text) > 200 for text in family_texts(prompts).values())
