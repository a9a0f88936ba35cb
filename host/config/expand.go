package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)(.*))?$`)

// expand replaces ${NAME}, ${NAME:-default} and ${NAME:?message}; $$ is a dollar, and any other dollar stands for itself. As in a
// shell, a variable that is empty takes its default.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), nil
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			s = rest[1:]
		case strings.HasPrefix(rest, "{"):
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", fmt.Errorf("${%s lacks its closing brace", rest[1:])
			}
			value, err := resolve(name, lookup)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			s = after
		default:
			out.WriteByte('$')
			s = rest
		}
	}
}

func resolve(expression string, lookup func(string) (string, bool)) (string, error) {
	parts := variable.FindStringSubmatch(expression)
	if parts == nil {
		return "", fmt.Errorf("${%s}: use ${NAME}, ${NAME:-default} or ${NAME:?message}", expression)
	}
	name, operator, operand := parts[1], parts[2], parts[3]
	value, ok := lookup(name)
	switch {
	case operator == "" && !ok:
		return "", fmt.Errorf("environment variable %s is not set; set it, or give a default with ${%s:-…}", name, name)
	case operator == ":-" && value == "":
		return operand, nil
	case operator == ":?" && value == "":
		return "", fmt.Errorf("environment variable %s is not set: %s", name, operand)
	}
	return value, nil
}
