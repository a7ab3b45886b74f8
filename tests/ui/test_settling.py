"""The first picture: a past that is being read is not shown as the present."""

from __future__ import annotations

from moetop.ui.app import MoetopApp
from moetop.ui.settling import GIVE_UP_S, PATIENCE_S, Pace, Settling
from tests.ui import scenes
from tests.ui.driving import opened, shown, until


def racing_feed() -> scenes.StillFeed:
    feed = scenes.sixteen()
    feed.now = scenes.NOW - 300
    return feed


def test_a_feed_whose_time_runs_ahead_of_ours_is_waited_for_but_not_for_long() -> None:
    feed, settling = racing_feed(), Settling()
    assert settling.look(feed, 0.0) is Pace.HOLDING
    feed.now += 60
    assert settling.look(feed, 0.2) is Pace.HOLDING
    feed.now += 60
    assert settling.look(feed, PATIENCE_S + 0.1) is Pace.READING
    feed.now += 120
    assert settling.look(feed, GIVE_UP_S + 0.1) is Pace.SETTLED


def test_a_live_feed_is_settled_at_the_second_look_and_stays_so() -> None:
    feed, settling = scenes.sixteen(), Settling()
    assert settling.look(feed, 0.0) is Pace.HOLDING
    feed.now += 1
    assert settling.look(feed, 0.2) is Pace.SETTLED
    feed.now += 300
    assert settling.look(feed, 0.4) is Pace.SETTLED
    settling.begin()
    assert settling.look(feed, 0.6) is Pace.HOLDING, "a replay jumped"


def test_hosts_that_have_not_answered_are_shown_at_once() -> None:
    assert Settling().look(scenes.connecting(), 0.0) is Pace.SETTLED


def test_a_fast_replay_is_not_taken_for_its_past() -> None:
    feed, settling = racing_feed(), Settling()
    settling.look(feed, 0.0, speed=16)
    feed.now += 4
    assert settling.look(feed, 0.2, speed=16) is Pace.SETTLED


async def test_until_the_past_is_read_the_screen_says_so_and_shows_no_verdict_of_it() -> None:
    feed = racing_feed()
    app = MoetopApp(feed, actions=scenes.Deeds(), ticking=False, no_color=False, ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        for _ in range(3):
            feed.now += 50
            app.tick()
            await pilot.pause()
            assert "nothing needs you" not in shown(app)
        assert "reading what came before" in shown(app)

        def settled() -> bool:
            app.tick()
            return "nothing needs you" in shown(app)

        await until(pilot, settled)


async def test_a_jump_of_a_replay_makes_no_news_of_what_differs() -> None:
    feed, now = scenes.big_fleet(2, 2), [scenes.NOW]
    deeds = scenes.Deeds()
    deeds.play = scenes.Playback(t=100.0, start=0.0, end=600.0, can_seek=True)
    async with opened(feed, clock=lambda: now[0], actions=deeds) as screen:
        now[0] += 60
        await screen.press("left_square_bracket")
        assert any(name == "seek" for name, _ in deeds.done)
        feed.put(feed.reports["node-00"])
        await screen.refetch()
        assert not screen.toasts()


async def test_what_the_configuration_read_anew_changed_is_said() -> None:
    deeds = scenes.Deeds()
    deeds.notices = ["configuration read anew: gpu09 added"]
    async with opened(scenes.sixteen(), actions=deeds) as screen:
        screen.app.tick()
        await screen.settle()
        assert screen.toasts() == ["hosts: configuration read anew: gpu09 added"]
