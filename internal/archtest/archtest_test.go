package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/archtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contract: W42
func TestModuleKeepsItsRules(t *testing.T) {
	t.Parallel()
	reasons := map[string]string{}
	for _, rule := range archtest.Rules() {
		reasons[rule.Name] = rule.Reason
	}
	for _, f := range check(t, filepath.Join("..", "..")) {
		t.Errorf("%s\n\tbecause %s", f, reasons[f.Rule])
	}
}

func TestEachRuleHasANameAndAReason(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, rule := range archtest.Rules() {
		if rule.Name == "" || rule.Reason == "" || seen[rule.Name] {
			t.Errorf("rule %q (%q): empty or twice", rule.Name, rule.Reason)
		}
		seen[rule.Name] = true
	}
}

// The module in testdata/broken breaks every rule; broken.want says where.
func TestEachRuleCanFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "broken"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pkg", "long", "long.go"), "package long\n"+strings.Repeat("\n", 600))

	var got strings.Builder
	broken := map[string]bool{}
	for _, f := range check(t, dir) {
		got.WriteString(f.String() + "\n")
		broken[f.Rule] = true
	}
	want, err := os.ReadFile(filepath.Join("testdata", "broken.want"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for _, rule := range archtest.Rules() {
		if !broken[rule.Name] {
			t.Errorf("rule %s finds nothing in a module that breaks it", rule.Name)
		}
	}
}

func TestCheckSaysWhatItCannotLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.test/x\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "x.go"), "package x\n\nimport _ \"example.test/x/none\"\n")
	_, err := archtest.Check(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "example.test/x/none") {
		t.Errorf("error %v, want one that names the missing package", err)
	}
}

func check(t *testing.T, dir string) []archtest.Finding {
	t.Helper()
	found, err := archtest.Check(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
