package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weavebus/weavebus/pkg/frames"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at gives a moment, in seconds.
func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// book is a catalogue with what its listeners were told.
type book struct {
	*catalogue
	now  time.Time
	told []string
}

func newBook() *book {
	b := &book{catalogue: newCatalogue(), now: epoch}
	b.clock = func() time.Time { return b.now }
	b.onChange = append(b.onChange, func(tool string) { b.told = append(b.told, "changed "+tool) })
	b.onGone = append(b.onGone, func(id Instance, dead bool) { b.told = append(b.told, fmt.Sprintf("gone %s dead %v", id.ID, dead)) })
	return b
}

func local(id string) Instance { return Instance{Identity: "local", ID: id} }

// declaration is of a version: another one has another digest.
func declaration(from Instance, tool, version string, keys ...string) *frames.Declaration {
	d := &frames.Declaration{Name: tool, Version: version, Identity: from.Identity, Instance: from.ID, Keys: keys}
	if err := d.Check(); err != nil {
		panic(err)
	}
	d.SetDigest()
	return d
}

func (b *book) says(from Instance, second int, tool, version string, keys ...string) {
	b.hear(&sign{from: from, at: at(second), kind: declares, decl: declaration(from, tool, version, keys...)})
}

func (b *book) ends(from Instance, second int) { b.hear(&sign{from: from, at: at(second), kind: ends}) }

func (b *book) lives(from Instance, second int, tools ...string) bool {
	return b.hear(&sign{from: from, at: at(second), kind: lives, tools: tools})
}

// shows gives a tool as "version: instances", "" for one that is not known.
func (b *book) shows(tool string) string {
	t := b.get(tool)
	if t == nil {
		return ""
	}
	var ids []string
	for _, s := range t.Instances {
		ids = append(ids, strings.Trim(s.Instance.Identity+"/"+s.Instance.ID, "/"))
	}
	return strings.TrimSpace(t.Version + ": " + strings.Join(ids, " "))
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestSilenceOfAnInstance(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.says(Instance{Identity: Plain, Tool: "plain"}, 0, "plain", "1")
	want(t, "declared", b.shows("echo"), "1: local/a")
	b.lives(local("a"), 10, "echo")
	b.told = nil
	b.expire(at(25))
	want(t, "15 s after its last word", b.shows("echo"), "1: local/a")
	b.expire(at(26))
	want(t, "after that", b.shows("echo"), "1:")
	want(t, "told", b.told, []string{"changed echo", "gone a dead false"})
	b.expire(at(90))
	want(t, "a service that announces nothing", b.shows("plain"), "1: tool")
	b.expire(at(91))
	want(t, "after three DESCRIBEs", b.shows("plain"), "1:")
}

func TestTimeWithoutAConnectionIsNoSilence(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.renew(at(60))
	b.expire(at(75))
	want(t, "after the time", b.shows("echo"), "1: local/a")
	b.expire(at(76))
	want(t, "silent since", b.shows("echo"), "1:")
}

func TestLostToolIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.remove(local("a"), true)
	want(t, "told", b.told, []string{"changed echo", "changed echo", "gone a dead true"})
	b.expire(at(600))
	want(t, "for a while", b.shows("echo"), "1:")
	b.told = nil
	b.expire(at(601))
	want(t, "then", b.shows("echo"), "")
	want(t, "told of the end", b.told, []string{"changed echo"})
	b.says(local("b"), 1000, "echo", "1")
	want(t, "served again", b.shows("echo"), "1: local/b")
}

func TestDrainingInstance(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.says(local("b"), 0, "echo", "1")
	b.ends(local("a"), 5)
	want(t, "one drains", b.shows("echo"), "1: local/b")
	want(t, "it is still there", b.has(local("a")), true)
	b.lives(local("a"), 6, "echo")
	want(t, "an alive after END changes nothing", b.shows("echo"), "1: local/b")
	b.ends(local("b"), 7)
	want(t, "both drain", b.shows("echo"), "1:")
}

// END may be heard before the stream, with the older declarations, is read.
func TestEndBeforeTheDeclarationIsRead(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.ends(local("a"), 5)
	b.says(local("a"), 3, "echo", "1")
	want(t, "it drains", b.shows("echo"), "1:")
}

// A process may use the id of one that ended.
func TestNewLifeOfAnInstance(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.says(local("a"), 0, "old", "1")
	b.ends(local("a"), 5)
	b.says(local("a"), 8, "echo", "1")
	want(t, "declared again", b.shows("echo"), "1: local/a")
	want(t, "not declared again", b.shows("old"), "1:")
}

// contract: P45, S24
func TestNewestDeclarationCounts(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.lives(local("a"), 1, "echo")
	b.says(local("b"), 10, "echo", "2")
	b.lives(local("b"), 11, "echo")
	want(t, "the newer came", b.shows("echo"), "2: local/b")
	b.says(local("a"), 20, "echo", "1") // as each 4 min
	b.lives(local("a"), 30, "echo")
	b.says(local("c"), 40, "echo", "2")
	b.lives(local("c"), 41, "echo")
	want(t, "the older spoke last", b.shows("echo"), "2: local/b local/c")
	b.ends(local("b"), 50)
	b.ends(local("c"), 50)
	want(t, "the newer ended", b.shows("echo"), "1: local/a")
	b.says(local("a"), 60, "echo", "3")
	want(t, "one changed its own", b.shows("echo"), "3: local/a")
}

// Who reads the stream later has the announcements in another order.
func TestNewestDeclarationByWhatItSays(t *testing.T) {
	t.Parallel()
	b := newBook()
	declare := func(id string, second, since int, version string) {
		b.hear(&sign{from: local(id), at: at(second), kind: declares, since: at(since), decl: declaration(local(id), "echo", version)})
	}
	declare("b", 200, 100, "2")
	declare("a", 240, 0, "1")
	want(t, "the newer began last", b.shows("echo"), "2: local/b")
}

func TestKeysOfAnInstance(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1", "x")
	b.says(local("b"), 0, "echo", "1", "y", frames.PathKey("/srv"))
	want(t, "keys", b.get("echo").Owners(), []string{"x", "y"})
	want(t, "with roots", len(b.get("echo").Keys()), 3)
	b.says(local("a"), 1, "echo", "1", "z")
	want(t, "other keys", b.get("echo").Owners(), []string{"y", "z"})
	want(t, "one declaration all the same", b.shows("echo"), "1: local/a local/b")
}

// contract: S24
func TestNameOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	b := newBook()
	other := Instance{Identity: "other", ID: "a"}
	b.says(local("a"), 0, "echo", "1")
	b.says(other, 1, "echo", "9")
	want(t, "the first has it", b.shows("echo"), "1: local/a")
	refused := b.refusals()
	if len(refused) != 1 || refused[0].Version != "9" || refused[0].Refused.Code != frames.CodeConflict || refused[0].Callable() {
		t.Fatalf("refused: %+v", refused)
	}
	b.ends(local("a"), 2)
	want(t, "it drains", b.shows("echo"), "1:")
	b.remove(local("a"), false)
	want(t, "it is gone", b.shows("echo"), "1:")
	b.says(local("a"), 3, "echo", "2")
	want(t, "it started anew", b.shows("echo"), "2: local/a")
	b.remove(local("a"), false)
	b.renew(at(601))
	b.told = nil
	b.expire(at(601))
	want(t, "gone for long", b.shows("echo"), "9: other/a")
	want(t, "told", b.told, []string{"changed echo"})
	want(t, "refused then", len(b.refusals()), 0)
	b.says(local("a"), 602, "echo", "1")
	want(t, "it came too late", b.shows("echo"), "9: other/a")
}

// What a service without an instance says of its identity is not proved: it
// cannot join another one's tool.
func TestPlainServiceIsAnIdentityOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	b.says(Instance{Identity: Plain, Tool: "echo"}, 1, "echo", "1")
	want(t, "instances", b.shows("echo"), "1: local/a")
	want(t, "refused", b.refusals()[0].Refused.Message, "tool echo is declared by local already")
}

func TestRefusedDeclaration(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("a"), 0, "echo", "1")
	bad := &sign{
		from: local("a"), at: at(1), kind: declares, decl: declaration(local("a"), "echo", "2"),
		err: frames.NewError(frames.CodeTooLarge, "too much"),
	}
	b.hear(bad)
	b.hear(bad)
	want(t, "it declares no good one any more", b.shows("echo"), "1:")
	if r := b.refusals(); len(r) != 1 || r[0].Refused.Code != frames.CodeTooLarge {
		t.Errorf("refused: %+v", r)
	}
	want(t, "it is asked for nothing", b.lives(local("a"), 2, "echo"), false)
	b.says(local("a"), 3, "echo", "3")
	want(t, "a good one again", b.shows("echo"), "3: local/a")
	want(t, "refused then", len(b.refusals()), 0)
}

func TestAliveThatNamesUnknownTools(t *testing.T) {
	t.Parallel()
	b := newBook()
	want(t, "unknown instance", b.lives(local("a"), 0, "echo"), true)
	want(t, "the same again", b.lives(local("a"), 5, "echo"), false)
	want(t, "another tool", b.lives(local("a"), 10, "echo", "more"), true)
	b.says(local("a"), 11, "echo", "1")
	want(t, "no names", b.lives(local("a"), 15), false)
	want(t, "unknown and no names", b.lives(local("b"), 15), true)
}

// What the stream holds is taken as one change: who is gone by then is never
// seen, but its tools are known to be down.
func TestLoadOfTheStream(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.says(local("known"), 0, "echo", "1")
	b.renew(at(100))
	b.told = nil
	seen := map[string]string{}
	b.onChange = append(b.onChange, func(tool string) { seen[tool] += b.shows(tool) })
	say := func(id string, second int, tool string) sign {
		return sign{from: local(id), at: at(second), kind: declares, decl: declaration(local(id), tool, "1")}
	}
	b.load([]sign{
		say("crashed", 20, "down"), {from: local("crashed"), at: at(40), kind: lives},
		say("ended", 90, "over"), {from: local("ended"), at: at(95), kind: ends},
		say("up", 0, "fine"), {from: local("up"), at: at(99), kind: lives},
		say("known", 0, "echo"),
	}, at(100))
	want(t, "seen", seen, map[string]string{"down": "1:", "over": "1:", "fine": "1: local/up"})
	want(t, "known before", b.shows("echo"), "1: local/known")
	want(t, "instances", len(b.instances), 3)
}

func TestBoundsOfTheCatalogue(t *testing.T) {
	t.Parallel()
	b := newBook()
	for i := range maxInstances + 10 {
		b.lives(local(fmt.Sprint(i)), 0)
	}
	want(t, "instances", len(b.instances), maxInstances)
	b.count = maxDeclarations
	b.says(local("0"), 1, "echo", "1")
	b.hear(&sign{from: local("0"), at: at(1), kind: declares, decl: declaration(local("0"), "bad", "1"), err: frames.NewError(frames.CodeTooLarge, "x")})
	want(t, "declared over the bound", b.shows("echo"), "")
	want(t, "refused over the bound", len(b.refusals()), 0)
}

// model is what the catalogue should hold, worked out the slow way.
type model struct {
	now    int
	in     map[Instance]*modelled
	owners map[string]string
	lost   map[string]int
}

type modelled struct {
	seen    int
	ended   bool
	alive   bool
	tools   map[string]string // version
	since   map[string]int
	refused map[string]bool
}

func newModelled() *modelled {
	return &modelled{tools: map[string]string{}, since: map[string]int{}, refused: map[string]bool{}}
}

// Whatever is said in whatever order, the catalogue's indexes agree with what
// was said.
func TestCatalogueAgreesWithAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBook()
		m := &model{in: map[Instance]*modelled{}, owners: map[string]string{}, lost: map[string]int{}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m.now += rapid.SampledFrom([]int{1, 3, 8, 601}).Draw(t, "seconds")
			b.now = at(m.now)
			id := local(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "instance"))
			id.Identity = rapid.SampledFrom([]string{"local", "other"}).Draw(t, "identity")
			m.step(t, b, id, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tool"))
			m.check(t, b)
		}
	})
}

func (m *model) step(t *rapid.T, b *book, id Instance, tool string) {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if kind < 4 && m.in[id] == nil {
		m.in[id] = newModelled()
	}
	in := m.in[id]
	if kind < 4 {
		in.seen = m.now
	}
	switch kind {
	case 0:
		version := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version")
		b.says(id, m.now, tool, version)
		if in.ended {
			*in = *newModelled()
			in.seen = m.now
		}
		if in.tools[tool] != version {
			in.since[tool] = m.now
		}
		in.tools[tool] = version
		delete(in.refused, tool)
	case 1:
		b.lives(id, m.now)
		in.alive = in.alive || !in.ended
	case 2:
		b.ends(id, m.now)
		in.ended = true
	case 3:
		b.hear(&sign{from: id, at: at(m.now), kind: declares, decl: declaration(id, tool, "1"), err: frames.NewError(frames.CodeTooLarge, "x")})
		delete(in.tools, tool)
		in.refused[tool] = true
	case 4:
		b.remove(id, true)
		delete(m.in, id)
	case 5:
		b.expire(at(m.now))
		maps.DeleteFunc(m.in, func(_ Instance, in *modelled) bool { return m.now-in.seen > 15 })
		for tool, since := range m.lost {
			if m.now-since > 600 {
				delete(m.owners, tool)
				delete(m.lost, tool)
			}
		}
	}
}

func (m *model) check(t *rapid.T, b *book) {
	count := 0
	for id, in := range m.in {
		count += len(in.tools) + len(in.refused)
		if b.instances[id] == nil {
			t.Fatalf("%v is missing", id)
		}
	}
	if b.count != count || len(b.instances) != len(m.in) {
		t.Fatalf("%d declarations of %d instances, want %d of %d", b.count, len(b.instances), count, len(m.in))
	}
	for _, tool := range []string{"x", "y"} {
		m.own(tool)
		if b.owners[tool] != m.owners[tool] {
			t.Fatalf("tool %s belongs to %q, want %q", tool, b.owners[tool], m.owners[tool])
		}
		m.checkTool(t, b, tool)
	}
}

// own gives a free name to who declared it first, and notes since when its owner
// does not declare it.
func (m *model) own(tool string) {
	first := Instance{}
	declared := false
	for id, in := range m.in {
		if in.tools[tool] == "" {
			continue
		}
		declared = declared || id.Identity == m.owners[tool]
		if first.ID == "" || in.since[tool] < m.in[first].since[tool] ||
			(in.since[tool] == m.in[first].since[tool] && compare(id, first) < 0) {
			first = id
		}
	}
	if m.owners[tool] == "" && first.ID != "" {
		m.owners[tool], declared = first.Identity, true
	}
	if _, lost := m.lost[tool]; declared {
		delete(m.lost, tool)
	} else if !lost && m.owners[tool] != "" {
		m.lost[tool] = m.now
	}
}

func (in *modelled) goesBefore(other *modelled, tool string) bool {
	if in.alive != other.alive {
		return in.alive
	}
	return in.since[tool] > other.since[tool]
}

// checkTool works out who serves the newest declaration of the tool's owner.
func (m *model) checkTool(t *rapid.T, b *book, tool string) {
	var serving []string
	var newest *modelled
	mine := func(id Instance, in *modelled) bool {
		return id.Identity == m.owners[tool] && in.tools[tool] != "" && !in.ended
	}
	for id, in := range m.in {
		if mine(id, in) && (newest == nil || in.goesBefore(newest, tool)) {
			newest = in
		}
	}
	for id, in := range m.in {
		if mine(id, in) && in.tools[tool] == newest.tools[tool] && in.alive == newest.alive {
			serving = append(serving, id.Identity+"/"+id.ID)
		}
	}
	slices.Sort(serving)
	var got []string
	if shown := b.get(tool); shown != nil {
		for _, s := range shown.Instances {
			got = append(got, s.Instance.Identity+"/"+s.Instance.ID)
		}
	}
	if diff := cmp.Diff(serving, got); diff != "" {
		t.Fatalf("tool %s (-want +got):\n%s", tool, diff)
	}
}

func TestProcessThatStoodStill(t *testing.T) {
	t.Parallel()
	w := watch{last: time.Now().Add(-time.Minute)}
	want(t, "after a minute", w.missed(nil), "the process stood still")
	want(t, "at once after that", w.missed(nil), "")
}
