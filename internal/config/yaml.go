package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// kind is the shape of a [value].
type kind uint8

const (
	scalar kind = iota
	mapping
	list
	null
)

func (k kind) String() string {
	return [...]string{"a value", "a mapping", "a list", "nothing"}[k]
}

// A value is a YAML node without what a configuration has no use for. Scalars
// keep the text as it was written, because only the key that takes one knows
// what it must be: so no name turns into a boolean and no version into a float.
type value struct {
	kind   kind
	text   string
	origin Origin
	fields []field // of a mapping, as written
	items  []value // of a list
}

type field struct {
	name   string
	origin Origin
	value  value
}

// describe returns what a message shows of the value.
func (v value) describe() string {
	if v.kind == scalar {
		return v.text
	}
	return ""
}

// parse reads YAML into a value. Every place in it is relative to origin: a file
// has lines, a flag has none.
func parse(data []byte, origin Origin, r *report) (value, bool) {
	file, err := parseYAML(data)
	if err != nil {
		p := Problem{Origin: origin, Want: "not valid YAML: " + err.Error()}
		if ye, ok := errors.AsType[yaml.Error](err); ok {
			p.Want = "not valid YAML: " + ye.GetMessage()
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				p.Origin = at(origin, tk.Position.Line)
			}
		}
		r.add(p)
		return value{}, false
	}
	var docs []*ast.DocumentNode
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc)
		}
	}
	switch len(docs) {
	case 0:
		return value{kind: null, origin: origin}, true
	case 1:
		c := converter{origin: origin, report: r}
		return c.convert(docs[0].Body, 0), true
	default:
		r.add(Problem{
			Origin: at(origin, docs[1].Body.GetToken().Position.Line),
			Want:   "a second YAML document begins here, want one document",
		})
		return value{}, false
	}
}

// parseYAML shields the daemon from a parser that panics on some broken input.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("cannot be parsed (%v)", reason)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// at returns origin at a line of its own, if origin has lines.
func at(origin Origin, line int) Origin {
	if origin.Layer == File {
		origin.Line = line
	}
	return origin
}

// maxDepth is how deep values may be nested; a configuration needs four.
const maxDepth = 16

type converter struct {
	origin Origin
	report *report
}

func (c *converter) convert(node ast.Node, depth int) value {
	v := value{origin: c.place(node)}
	if depth > maxDepth {
		c.report.add(Problem{Origin: v.origin, Want: "nested too deeply"})
		v.kind = null
		return v
	}
	switch n := node.(type) {
	case nil, *ast.NullNode:
		v.kind = null
	case *ast.MappingNode:
		v.kind = mapping
		for _, entry := range n.Values {
			c.addField(&v, entry, depth)
		}
	case *ast.MappingValueNode:
		v.kind = mapping
		c.addField(&v, n, depth)
	case *ast.SequenceNode:
		v.kind = list
		for _, item := range n.Values {
			v.items = append(v.items, c.convert(item, depth+1))
		}
	case *ast.StringNode:
		v.text = n.Value
	case *ast.LiteralNode:
		v.text = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		v.text = n.GetToken().Value
	default:
		c.report.add(Problem{
			Origin: v.origin,
			Value:  strings.TrimSpace(node.String()),
			Want:   "anchors, aliases and tags are not supported, want a plain value",
		})
		v.kind = null
	}
	return v
}

func (c *converter) addField(v *value, entry *ast.MappingValueNode, depth int) {
	origin := c.place(entry.Key)
	var name string
	switch key := entry.Key.(type) {
	case *ast.StringNode:
		name = key.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		name = key.GetToken().Value
	default:
		c.report.add(Problem{
			Origin: origin,
			Value:  strings.TrimSpace(entry.Key.String()),
			Want:   "not a plain key, want a name",
		})
		return
	}
	child := c.convert(entry.Value, depth+1)
	if child.kind == null {
		child.origin = origin
	}
	v.fields = append(v.fields, field{name: name, origin: origin, value: child})
}

func (c *converter) place(node ast.Node) Origin {
	if node == nil {
		return c.origin
	}
	tk := node.GetToken()
	if tk == nil || tk.Position == nil {
		return c.origin
	}
	return at(c.origin, tk.Position.Line)
}
