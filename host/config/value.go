package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// value is a YAML value with its place.
type value struct {
	where   Position
	kind    kind
	text    string // of a string
	varies  bool   // the string came from a variable: what it holds decides its kind
	scalar  any    // of a number or a boolean
	items   []*value
	entries []entry
}

type entry struct {
	key   string
	where Position
	value *value
}

// kind says what a value is, in the words of an error message.
type kind string

const (
	null     kind = "null"
	text     kind = "a string"
	number   kind = "a number"
	boolean  kind = "a boolean"
	sequence kind = "a list"
	mapping  kind = "a mapping"
)

// plain is the value as encoding/json takes it.
func (v *value) plain() any {
	switch v.kind {
	case text:
		return v.text
	case sequence:
		list := make([]any, 0, len(v.items))
		for _, item := range v.items {
			list = append(list, item.plain())
		}
		return list
	case mapping:
		object := map[string]any{}
		for _, e := range v.entries {
			object[e.key] = e.value.plain()
		}
		return object
	default:
		return v.scalar
	}
}

// parse reads one YAML document; nil for an empty one.
func parse(file string, data []byte) (*value, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	tree, err := parser.ParseBytes(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), 0)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Error{Position{file, doc.Body.GetToken().Position.Line}, "a configuration is one YAML document"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, nil
	}
	c := converter{file: file, anchors: map[string]*value{}}
	v := c.convert(body)
	return v, errors.Join(c.errs...)
}

func syntaxError(file string, err error) error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return &Error{Position{file, 1}, err.Error()}
	}
	return &Error{Position{file, y.GetToken().Position.Line}, y.GetMessage()}
}

// converter turns the parser's tree into values.
type converter struct {
	file    string
	anchors map[string]*value
	errs    []error
}

func (c *converter) convert(n ast.Node) *value {
	v := &value{where: c.position(n), kind: null}
	switch n := n.(type) {
	case nil, *ast.NullNode:
	case *ast.StringNode:
		v.kind, v.text = text, n.Value
	case *ast.LiteralNode:
		v.kind, v.text = text, n.Value.Value
	case *ast.IntegerNode:
		v.kind, v.scalar = number, n.Value
	case *ast.FloatNode:
		v.kind, v.scalar = number, n.Value
	case *ast.BoolNode:
		v.kind, v.scalar = boolean, n.Value
	case *ast.SequenceNode:
		v.kind = sequence
		for _, item := range n.Values {
			v.items = append(v.items, c.convert(item))
		}
	case *ast.MappingNode:
		v.kind = mapping
		for _, item := range n.Values {
			c.entry(v, item)
		}
	case *ast.MappingValueNode:
		v.kind = mapping
		c.entry(v, n)
	case *ast.AnchorNode:
		v = c.convert(n.Value)
		c.anchors[n.Name.GetToken().Value] = v
	case *ast.AliasNode:
		anchored := c.anchors[n.Value.GetToken().Value]
		if anchored == nil {
			c.failf(n, "no anchor %q before this place", n.Value.GetToken().Value)
			return v
		}
		return anchored
	default:
		c.failf(n, "a %s has no place in a configuration", n.Type())
	}
	return v
}

func (c *converter) entry(v *value, item *ast.MappingValueNode) {
	key := item.Key.GetToken().Value
	if _, ok := item.Key.(*ast.MergeKeyNode); ok {
		c.failf(item, "merge keys are not supported")
		return
	}
	if s, ok := item.Key.(*ast.StringNode); ok {
		key = s.Value
	}
	v.entries = append(v.entries, entry{key, c.position(item.Key), c.convert(item.Value)})
}

func (c *converter) position(n ast.Node) Position {
	if n == nil || n.GetToken() == nil {
		return Position{c.file, 1}
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 { // a mapping's own token is its first colon
		n = m.Values[0].Key
	} else if m, ok := n.(*ast.MappingValueNode); ok {
		n = m.Key
	}
	return Position{c.file, n.GetToken().Position.Line}
}

func (c *converter) failf(n ast.Node, format string, args ...any) {
	c.errs = append(c.errs, &Error{c.position(n), fmt.Sprintf(format, args...)})
}

// parseScalar reads the text of an expanded variable as the number or boolean that a schema asks for.
func parseScalar(s string) (any, bool) {
	if b, err := strconv.ParseBool(s); err == nil && (s == "true" || s == "false") {
		return b, true
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f, true
	}
	return nil, false
}
