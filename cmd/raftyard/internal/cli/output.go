package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
)

// A view is the result of a command in each form that it can be asked for.
type view struct {
	data  any      // for json and yaml: the document of the HTTP API
	names []string // for name: one line each

	// For table: either rows under a header, or a text.
	header []string
	rows   [][]string
	text   string
}

// formats are what -o may be.
func formats() []string { return []string{"table", "json", "yaml", "name"} }

// show writes the result to standard output.
func (a *app) show(v view) error {
	switch a.flags.output {
	case "json":
		return a.showJSON(v.data)
	case "yaml":
		return a.showYAML(v.data)
	case "name":
		return a.print(lines(v.names))
	default:
		if v.header == nil {
			return a.print(v.text)
		}
		return a.print(table(v.header, v.rows))
	}
}

func lines(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, "\n") + "\n"
}

func (a *app) print(text string) error {
	_, err := a.env.Stdout.Write([]byte(text))
	return err
}

func (a *app) showJSON(data any) error {
	text, err := encodeJSON(data)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return a.print(text)
}

func encodeJSON(data any) (string, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(data)
	return buf.String(), err
}

// showYAML writes the JSON document as YAML, so that both have the same names.
func (a *app) showYAML(data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	text, err = yaml.JSONToYAML(text)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return a.print(string(text))
}

// table lays rows out in columns.
func table(header []string, rows [][]string) string {
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		// Writing to a buffer does not fail.
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	// The last column is not padded, but an empty one leaves blanks.
	var out strings.Builder
	for line := range strings.Lines(buf.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return out.String()
}

// join returns the texts of list with commas between them.
func join[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = one.String()
	}
	return strings.Join(texts, ",")
}

// count returns a number of things, in the singular for one.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// dash stands for what is not there.
func dash(text string) string {
	if text == "" || text == "0" {
		return "-"
	}
	return text
}

// printable returns bytes for a table: as they are when a terminal shows them
// so, else quoted.
func printable(b []byte) string {
	quoted := fmt.Sprintf("%q", b)
	if plain := quoted[1 : len(quoted)-1]; plain == string(b) && plain != "" {
		return plain
	}
	return quoted
}

// version says what was built.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns the version in one line.
func (v version) String() string {
	return fmt.Sprintf("raftyard %s (%s, %s)", v.Version, v.Go, v.Platform)
}

// buildVersion reads what the Go toolchain has put into the binary.
func buildVersion() version {
	v := version{
		Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
