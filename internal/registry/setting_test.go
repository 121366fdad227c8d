package registry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

func (b *book) decide(tool string, revision uint64, s Setting) { b.set(tool, revision, s) }

// One announcement without a sign of life takes nothing away: no new digest, and
// no tool that a live instance is not alive with.
func TestDeclarationWithoutLifeReplacesNothing(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.says(local("a"), 0, "other", "1")
	b.lives(local("a"), 1, "echo", "other")
	b.says(local("forged"), 2, "echo", "2")
	want(t, "a new digest", b.shows("echo"), "1: local/a")
	b.says(local("forged"), 3, "echo", "1")
	want(t, "the same digest", b.shows("echo"), "1: local/a")
	b.lives(local("b"), 4, "fine")
	b.says(local("b"), 4, "echo", "3")
	want(t, "of an instance that is alive with something else", b.shows("echo"), "1: local/a")
	b.lives(local("b"), 5, "fine", "echo")
	want(t, "alive with it", b.shows("echo"), "3: local/b")
	b.ends(local("b"), 6)
	want(t, "it ended", b.shows("echo"), "1: local/a")
	b.lives(local("b"), 7, "echo")
	want(t, "alive after END", b.shows("echo"), "1: local/a")
	b.says(local("b"), 8, "echo", "4")
	want(t, "another life that is not alive yet", b.shows("echo"), "1: local/a")
	b.remove(local("a"), true)
	want(t, "nobody is alive", b.shows("echo"), "4: local/b")
}

// An alive that names nothing stands for all tools.
func TestAliveWithoutNames(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.lives(local("a"), 1)
	b.says(local("b"), 2, "echo", "2")
	b.lives(local("b"), 3)
	want(t, "the newer", b.shows("echo"), "2: local/b")
}

// Who has a name goes by when it was heard, not by what an announcement says of
// its age, nor by one that says it comes from the future.
func TestAgeCannotBeForged(t *testing.T) {
	t.Parallel()
	b := newBook()
	other := Instance{Identity: "other", ID: "a"}
	say := func(from Instance, second, since int, version string) sign {
		return sign{from: from, at: at(second), kind: declares, since: at(since), decl: declaration(from, "echo", version)}
	}
	b.load([]sign{say(local("a"), 10, 9, "1"), say(other, 11, -1000, "9")}, at(12))
	want(t, "the first has it", b.shows("echo"), "1: local/a")
	b.hear(&sign{from: local("a"), at: at(13), kind: lives})
	future := say(local("b"), 14, 10_000, "2")
	b.hear(&future)
	b.hear(&sign{from: local("b"), at: at(15), kind: lives})
	later := say(local("c"), 20, 20, "3")
	b.hear(&later)
	b.hear(&sign{from: local("c"), at: at(21), kind: lives})
	want(t, "one from the future is as old as its word", b.shows("echo"), "3: local/c")
}

// A name that is contested is noted for who has it; what is noted decides, until
// its owner is forgotten.
func TestContestedName(t *testing.T) {
	t.Parallel()
	b := newBook()
	other := Instance{Identity: "other", ID: "a"}
	b.says(local("a"), 0, "echo", "1")
	want(t, "nobody else", len(b.takeContests()), 0)
	b.says(other, 1, "echo", "9")
	want(t, "to be noted", b.takeContests()["echo"] == contest{owner: "local"}, true)
	b.decide("echo", 1, Setting{Route: "local", Auto: true})
	b.says(other, 2, "echo", "8")
	want(t, "noted already", len(b.takeContests()), 0)

	late := newBook() // reads them in another order
	late.decide("echo", 1, Setting{Route: "local", Auto: true})
	late.says(other, 2, "echo", "8")
	late.says(local("a"), 3, "echo", "1")
	want(t, "the same for who comes later", late.shows("echo"), "1: local/a")

	b.remove(local("a"), true)
	b.now = at(700)
	b.renew(at(700))
	b.expire(at(700))
	want(t, "its owner is forgotten", b.shows("echo"), "8: other/a")
	want(t, "no longer noted", b.takeContests()["echo"] == contest{was: "local"}, true)
}

// A name that is noted for somebody who never comes is free after a while.
func TestNotedForNobody(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.decide("echo", 1, Setting{Route: "local", Auto: true})
	b.says(Instance{Identity: "other", ID: "a"}, 0, "echo", "1")
	want(t, "kept free", b.shows("echo"), "")
	b.renew(at(601))
	b.expire(at(601))
	want(t, "then", b.shows("echo"), "1: other/a")
}

// contract: W33, B54
func TestSwap(t *testing.T) {
	t.Parallel()
	b := newBook()
	other := Instance{Identity: "other", ID: "x"}
	b.says(local("a"), 0, "echo", "1")
	b.says(other, 1, "echo", "2")
	b.decide("echo", 7, Setting{Route: "other"})
	want(t, "swapped", b.shows("echo"), "2: other/x")
	_, refused := b.standing("echo")
	want(t, "the old one is in the way now", refused[0].Refused.Message, "tool echo is declared by other already")
	b.decide("echo", 6, Setting{Route: "local"})
	want(t, "an older decision", b.shows("echo"), "2: other/x")
	b.remove(other, true)
	want(t, "gone", b.shows("echo"), "2:")
	b.renew(at(10_000))
	b.expire(at(10_000))
	want(t, "the name stays with it", b.shows("echo"), "")
	b.decide("echo", 8, Setting{Route: "local"})
	want(t, "swapped back", b.shows("echo"), "1: local/a")
}

// contract: W34, S22
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.decide("echo", 1, Setting{Disabled: true})
	want(t, "shown before anybody declares it", b.shows("echo"), "0.0.0:")
	b.says(local("a"), 0, "echo", "1", "key")
	want(t, "declared", b.shows("echo"), "1:")
	echo := b.get("echo")
	want(t, "who would serve it", len(echo.Serving), 1)
	want(t, "its keys", echo.Owners(), []string{"key"})
	want(t, "callable", echo.Callable(), false)
	b.decide("echo", 2, Setting{})
	want(t, "switched on", b.shows("echo"), "1: local/a")
	b.decide("echo", 3, Setting{Retired: true})
	b.remove(local("a"), true)
	b.renew(at(601))
	b.expire(at(601))
	want(t, "still shown", b.get("echo").Setting.Retired, true)
	b.decide("echo", 4, Setting{})
	want(t, "forgotten", b.shows("echo"), "")
}

func TestLimitsOfAnOperator(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	declared := b.get("echo")
	want(t, "declared", declared.Instances[0].Slots, 0)
	b.decide("echo", 1, Setting{Limits: Limits{Concurrency: 3, TimeoutMs: 1000}})
	limited := b.get("echo")
	want(t, "slots", limited.Instances[0].Slots, 3)
	want(t, "held", []bool{declared.Instances[0].Held, limited.Instances[0].Held}, []bool{false, true})
	want(t, "time-out", limited.Timeout(), time.Second)
	want(t, "digest", limited.Digest, declared.Digest)
	b.decide("echo", 2, Setting{Limits: Limits{TimeoutMs: time.Hour.Milliseconds()}})
	want(t, "it only tightens", b.get("echo").Timeout(), declared.Timeout())
	want(t, "slots only tighten", Limits{Concurrency: 9}.slots(4), 4)
}

// What is lost is kept within a bound, the oldest goes.
func TestLostToolsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBook()
	for i := range maxLost + 10 {
		b.now = at(i)
		id := local(fmt.Sprint(i))
		b.says(id, i, fmt.Sprintf("tool-%d", i), "1")
		b.remove(id, true)
	}
	want(t, "tools", len(b.tools), maxLost)
	want(t, "owners", len(b.owners), maxLost)
	want(t, "the oldest", b.shows("tool-9"), "")
	want(t, "the next", b.shows("tool-10"), "1:")
	want(t, "bytes", b.bytes, 0)
	last := slices.Sorted(slices.Values(b.told[len(b.told)-3:]))
	want(t, "told of what was forgotten", last, []string{"changed tool-1009", "changed tool-9", "gone 1009 dead true"})
}

// Instances that declare the same hold its texts once, and what is held is bounded.
func TestTextsAreShared(t *testing.T) {
	t.Parallel()
	b := newBook()
	big := func(from Instance) *sign {
		d := declaration(from, "echo", "1")
		d.Schema = fmt.Appendf(nil, `{"type":"object","description":"%01000d"}`, 0)
		d.SetDigest()
		return &sign{from: from, at: at(0), kind: declares, decl: d}
	}
	b.hear(big(local("a")))
	b.hear(big(local("b")))
	var texts []*byte
	for _, d := range b.serving["echo"] {
		texts = append(texts, &d.Schema[0])
	}
	want(t, "one text", texts[0] == texts[1], true)
	b.bytes = maxBytes
	b.hear(big(local("c")))
	want(t, "over the bound", b.shows("echo"), "1: local/a local/b")
	want(t, "said so", b.wasFull(), true)
	want(t, "once", b.wasFull(), false)
	b.remove(local("a"), false)
	b.remove(local("b"), false)
	b.remove(local("c"), false)
	want(t, "given back", b.bytes, maxBytes-2*(&declared{Declaration: big(local("a")).decl}).cost())
}

func TestNamesAreCounted(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.lives(local("a"), 0, "one", "two")
	want(t, "bytes", b.bytes, 2*nameBytes)
	b.lives(local("a"), 1, "one")
	want(t, "fewer", b.bytes, nameBytes)
	b.remove(local("a"), false)
	want(t, "gone", b.bytes, 0)
	skips := &sign{from: local("a"), at: at(1), kind: lives, skipped: []*Tool{{Declaration: &frames.Declaration{Name: "f"}}}}
	b.hear(skips)
	want(t, "with what is skipped", b.bytes, skippedBytes)
	b.hear(skips)
	want(t, "the same again", []int{b.bytes, len(b.refusals())}, []int{skippedBytes, 1})
	b.remove(local("a"), false)
	want(t, "all gone", b.bytes, 0)
	b.bytes = maxBytes
	b.hear(skips)
	want(t, "no room for what is skipped", len(b.refusals()), 0)
	b.says(local("a"), 2, "echo", "1")
	b.lives(local("a"), 2, "one")
	want(t, "no room for names", len(b.instances[local("a")].named), 0)
}

// Whatever was stored under a tool's key, it is read or skipped.
func TestStoredSettings(t *testing.T) {
	t.Parallel()
	for data, good := range map[string]bool{
		"": true, "{}": true, `{"disabled":true,"unknown":[1]}`: true, `{"disabled":1}`: false, "\x81": false, "[]": false, "null": true,
	} {
		if _, err := settingFrom([]byte(data)); (err == nil) != good {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestVerdictIsFoundOnce(t *testing.T) {
	t.Parallel()
	r := New(nil, Config{Prefix: "wb"})
	d := declaration(local("a"), "echo", "1")
	d.Schema = []byte(`{"type":7}`)
	d.SetDigest()
	r.cat.hear(&sign{from: local("a"), at: at(0), kind: declares, decl: d})
	first := r.Check(r.Get("echo"))
	if frames.CodeOf(first) != frames.CodeValidationInput {
		t.Fatalf("got %v", first)
	}
	r.cat.set("echo", 1, Setting{Disabled: true}) // a new snapshot
	want(t, "the same verdict", r.Check(r.Get("echo")) == first, true)
	want(t, "states", []State{r.State(r.Get("echo"))}, []State{Disabled})
	want(t, "compiled and kept", r.cfg.Schemas.Len(), 0)
}
