package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sdkModule is the module that the SDK is in.
const sdkModule = "github.com/dsh-go/dsh"

// leastGo is the version of Go that the published SDK needs.
const leastGo = "1.26.0"

// goMod is what go.mod says besides the path.
type goMod struct {
	Go         string
	SDKVersion string
	Checkout   string // as go.mod writes it; empty: none
	Requires   []string
}

var (
	goLine      = regexp.MustCompile(`(?m)^go (\S+)$`)
	moduleLine  = regexp.MustCompile(`(?m)^module (\S+)$`)
	requirement = regexp.MustCompile(`(?m)^(?:\t|require )([^\s()]+ v[^\s]+)`)
)

// goMod finds out how the plugin's module comes by the SDK. The go command takes the version of a published one as it is and finds
// the rest. With a checkout it would have to ask the network for what the SDK needs, so the plugin gets that along with its sums.
func (p Plugin) goMod() (m goMod, sums []byte, err error) {
	if p.SDK == "" {
		return goMod{Go: leastGo, SDKVersion: p.Version}, nil, nil
	}
	dir, err := filepath.Abs(p.SDK)
	if err != nil {
		return goMod{}, nil, fmt.Errorf("find the SDK: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !isSDK(text) {
		return goMod{}, nil, fmt.Errorf("folder %s has no go.mod of %s: name a checkout of dsh with --sdk", dir, sdkModule)
	}
	if sums, err = os.ReadFile(filepath.Join(dir, "go.sum")); err != nil {
		return goMod{}, nil, fmt.Errorf("read what the SDK needs: %w", err)
	}
	m = goMod{Go: leastGo, SDKVersion: "v0.0.0", Checkout: quote(dir)}
	if found := goLine.FindSubmatch(text); found != nil {
		m.Go = string(found[1])
	}
	for _, found := range requirement.FindAllSubmatch(text, -1) {
		m.Requires = append(m.Requires, string(found[1]))
	}
	slices.Sort(m.Requires)
	return m, sums, nil
}

// quote writes a path as go.mod has it.
func quote(path string) string {
	if strings.ContainsAny(path, " \"'`()[]{},") || strings.Contains(path, "//") || strings.Contains(path, "/*") {
		return strconv.Quote(path)
	}
	return path
}

func isSDK(text []byte) bool {
	found := moduleLine.FindSubmatch(text)
	return found != nil && string(found[1]) == sdkModule
}

// FindSDK finds the checkout of dsh that a folder is in; empty: it is in none.
func FindSDK(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the SDK: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && isSDK(text):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return "", fmt.Errorf("find the SDK: %w", err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		dir = parent
	}
}
