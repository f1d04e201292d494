package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Sources are the layers of a configuration. All of them may be empty.
type Sources struct {
	// File is the path of a YAML file, or empty.
	File string
	// LookupEnv finds environment variables, as os.LookupEnv does.
	LookupEnv func(name string) (string, bool)
	// Flags holds the flags that were given, by [Setting.Flag].
	Flags map[string]string
	// Shared: the file may be the one that all founding nodes have, which leaves node.id
	// out. It is checked for each of them then, and what is loaded has no id.
	Shared bool
}

// Loaded is a configuration that can be used.
type Loaded struct {
	Config
	// Warnings are worth a look but no reason to refuse.
	Warnings []Problem

	origins map[string]Origin
}

// Load merges the sources and checks the result. It returns an [*Error] that
// holds every problem, and writes nothing.
func Load(src Sources) (*Loaded, error) {
	l := &loader{
		sources:  src,
		settings: Settings(),
		loaded:   &Loaded{origins: map[string]Origin{}},
	}
	l.decoder = &decoder{report: &l.report, origins: l.loaded.origins}
	l.defaults()
	readable := l.file()
	fileID := l.loaded.Node.ID
	l.environment()
	l.flags()
	if readable { // or everything would be missing, too
		v := validator{report: &l.report, Loaded: l.loaded, file: src.File, fileID: fileID}
		if src.Shared && v.isShared() {
			v.validateShared()
		} else {
			v.fillListen()
			v.validate()
		}
	}
	return l.result()
}

type loader struct {
	sources  Sources
	settings []Setting
	report   report
	decoder  *decoder
	loaded   *Loaded
}

func (l *loader) defaults() {
	for _, s := range l.settings {
		if s.Default != "" {
			l.setText(s, s.Default, Origin{Layer: Default})
		}
	}
}

// setText decodes a value that stands outside the file.
func (l *loader) setText(s Setting, text string, origin Origin) {
	v := value{kind: scalar, text: text, origin: origin}
	if s.isList {
		parsed, ok := parse([]byte(text), origin, &l.report)
		if !ok {
			return
		}
		v = parsed
	}
	s.set(l.decoder, v, s.Key, &l.loaded.Config)
}

// file decodes the file and reports whether it held a configuration at all.
func (l *loader) file() bool {
	if l.sources.File == "" {
		return true
	}
	origin := Origin{Layer: File, Name: l.sources.File}
	data, err := readFile(l.sources.File)
	if err != nil {
		l.report.add(Problem{Origin: origin, Want: err.Error()})
		return false
	}
	root, ok := parse(data, origin, &l.report)
	if !ok {
		return false
	}
	switch root.kind {
	case mapping:
		l.decoder.mapping(root, "", l.fileEntries(""))
		return true
	case null:
		l.report.add(Problem{Origin: origin, Want: "the file is empty, want a configuration " +
			"(raftyard config example prints one)"})
	default:
		l.report.bad(root, "", "got %s, want keys such as cluster and node", root.kind)
	}
	return false
}

func readFile(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, reason(err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("the file is over %d bytes", maxFileBytes)
	}
	return data, nil
}

// reason drops the path from err: the message names it already.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("cannot be read: %w", pe.Err)
	}
	return fmt.Errorf("cannot be read: %w", err)
}

// fileEntries returns the keys that may stand under prefix in the file.
func (l *loader) fileEntries(prefix string) []entry {
	var entries []entry
	for _, s := range l.settings {
		section, name := split(s.Key)
		switch {
		case section == prefix:
			entries = append(entries, entry{name: name, read: func(v value, key string) {
				s.set(l.decoder, v, key, &l.loaded.Config)
			}})
		case prefix == "" && !slices.ContainsFunc(entries, named(section)):
			entries = append(entries, entry{name: section, read: l.section})
		}
	}
	if prefix == "" {
		entries = append(entries,
			entry{name: "tls", read: l.unsupported, hidden: true},
			entry{name: "auth", read: l.unsupported, hidden: true})
	}
	return entries
}

func named(name string) func(entry) bool {
	return func(e entry) bool { return e.name == name }
}

func (l *loader) section(v value, key string) {
	switch v.kind {
	case mapping:
		l.decoder.mapping(v, key, l.fileEntries(key))
	case null: // every key below it has its default
	default:
		l.report.bad(v, key, "got %s, want a mapping", v.kind)
	}
}

// unsupported refuses what a later version will have: a daemon that accepted and
// ignored it would be open while its operator believes that it is not.
func (l *loader) unsupported(v value, key string) {
	l.report.add(Problem{
		Origin: v.origin, Key: key,
		Want: "not supported by this version, want it removed",
		Hint: "bind to loopback or to a private network",
	})
}

// split returns the section and the name of a key; a key without a dot has no
// section.
func split(key string) (section, name string) {
	for i := range len(key) {
		if key[i] == '.' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}

func (l *loader) environment() {
	if l.sources.LookupEnv == nil {
		return
	}
	for _, s := range l.settings {
		// An empty variable is how scripts and unit files say "not set".
		if text, ok := l.sources.LookupEnv(s.Env); ok && text != "" {
			l.setText(s, text, Origin{Layer: Environment, Name: s.Env})
		}
	}
}

func (l *loader) flags() {
	for _, s := range l.settings {
		if text, ok := l.sources.Flags[s.Flag]; ok {
			l.setText(s, text, Origin{Layer: Flag, Name: "--" + s.Flag})
		}
	}
}

func (l *loader) result() (*Loaded, error) {
	slices.SortStableFunc(l.report.problems, compareProblems)
	var problems []Problem
	for _, p := range l.report.problems {
		if p.Warning {
			l.loaded.Warnings = append(l.loaded.Warnings, p)
		} else {
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return l.loaded, nil
}
