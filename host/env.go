package host

import (
	"slices"
	"strings"
)

// credentialWords mark the name of a variable as that of a credential.
var credentialWords = []string{"KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL"}

// pluginEnv is the environment of a plugin process: the host's without credentials and without what is dsh's own, and what the row
// adds.
func pluginEnv(host []string, row map[string]string) []string {
	var env []string
	for _, entry := range host {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := row[name]; !replaced && !isPrivate(name) {
			env = append(env, entry)
		}
	}
	for name, value := range row {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

func isPrivate(name string) bool {
	upper := strings.ToUpper(name)
	if strings.HasPrefix(upper, "DSH_") || strings.HasPrefix(upper, "PLUGIN_") {
		return true
	}
	return slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(upper, word) })
}
