package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the documents of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

var link = regexp.MustCompile("\\[(`?)([^]`]+)`?\\]\\(([^)#]+)(#[^)]*)?\\)")

// A link to a file names something that is there; one whose text is code names something that is in it.
func TestTheLinksOfTheDocumentsHold(t *testing.T) {
	named := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			quote, name, target := m[1], m[2], m[3]
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(filepath.Dir(page), target)
			info, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if quote == "" || info.IsDir() || name == filepath.Base(path) || !strings.HasSuffix(path, ".go") {
				continue
			}
			named++
			receiver, method, isMethod := strings.Cut(name, ".")
			declared := `(?m)^(func (\([^)]*\) )?|type )` + regexp.QuoteMeta(name) + `\b`
			if isMethod {
				declared = `(?m)^func \(\w+ \*?` + regexp.QuoteMeta(receiver) + `\) ` + regexp.QuoteMeta(method) + `\b`
			}
			code, err := os.ReadFile(path)
			if err != nil || !regexp.MustCompile(declared).Match(code) {
				t.Errorf("%s: %s does not declare %s", page, target, name)
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d links name a declaration", named)
	}
}

// What CONTRIBUTING.md tells people to run is what .ci/run runs, or runs here.
func TestTheCommandsOfContributingWork(t *testing.T) {
	ci, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	lines := indented(t, "../../CONTRIBUTING.md")
	if len(lines) < 10 {
		t.Fatalf("found only the commands %q", lines)
	}
	program := filepath.Join("..", "..", "dsh")
	if _, err := os.Stat(program); os.IsNotExist(err) {
		t.Cleanup(func() { os.Remove(program) })
	}
	for _, line := range lines {
		switch {
		case strings.Contains(string(ci), line), line == "go vet ./...":
		case strings.Contains(line, "-bench . "):
			shell(t, "../..", strings.Replace(line, "-bench .", "-bench Nothing", 1))
		case line == "go test -race ./host/router", strings.HasPrefix(line, "go build "):
			shell(t, "../..", line)
		default:
			t.Errorf("nothing runs %q", line)
		}
	}
}
