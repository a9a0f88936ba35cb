package host

import (
	"slices"
	"strings"

	"github.com/dsh-go/dsh/sdk/api/environ"
)

// pluginEnv is the environment of a plugin process: the host's without credentials and without what is dsh's own, and what the row
// adds.
func pluginEnv(host []string, row map[string]string) []string {
	var env []string
	for _, entry := range host {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := row[name]; !replaced && !environ.IsPrivate(name) {
			env = append(env, entry)
		}
	}
	for name, value := range row {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}
