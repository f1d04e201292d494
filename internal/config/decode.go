package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A decoder turns values into fields of a [Config]. What it cannot turn it
// reports, and leaves the field as it is. It notes the origin of each key that
// it has read.
type decoder struct {
	report  *report
	origins map[string]Origin
}

// scalar returns the text of v, or reports what is wanted.
func (d *decoder) scalar(v value, key, want string) (string, bool) {
	switch {
	case v.kind != scalar:
		d.report.bad(v, key, "got %s, want %s", v.kind, want)
	case v.text == "":
		d.report.bad(v, key, "empty, want %s", want)
	default:
		d.origins[key] = v.origin
		return v.text, true
	}
	return "", false
}

func (d *decoder) text(v value, key, want string, to *string) {
	text, ok := d.scalar(v, key, want)
	switch {
	case !ok:
	case strings.ContainsRune(text, 0):
		d.report.bad(v, key, "holds a zero byte, want %s", want)
	default:
		*to = text
	}
}

// name reads what ends up in messages and identities, so it is kept plain.
func (d *decoder) name(v value, key string, to *string) {
	want := fmt.Sprintf("want a name of at most %d letters, digits, '.', '_' and '-'", maxNameBytes)
	text, ok := d.scalar(v, key, strings.TrimPrefix(want, "want "))
	switch {
	case !ok:
	case len(text) > maxNameBytes || strings.ContainsFunc(text, notInName):
		d.report.bad(v, key, "%s", want)
	default:
		*to = text
	}
}

func notInName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	default:
		return r != '.' && r != '_' && r != '-'
	}
}

func (d *decoder) word(v value, key string, words []string, to *string) {
	want := "one of " + strings.Join(words, ", ")
	text, ok := d.scalar(v, key, want)
	if !ok {
		return
	}
	if !slices.Contains(words, text) {
		d.report.add(Problem{
			Origin: v.origin, Key: key, Value: text, Want: "want " + want, Hint: meant(text, words),
		})
		return
	}
	*to = text
}

func (d *decoder) duration(v value, key string, least, most time.Duration, to *time.Duration) {
	want := fmt.Sprintf("a duration from %v to %v, such as 100ms", least, most)
	text, ok := d.scalar(v, key, want)
	if !ok {
		return
	}
	got, err := time.ParseDuration(text)
	if err != nil || got < least || got > most {
		d.report.bad(v, key, "want %s", want)
		return
	}
	*to = got
}

func (d *decoder) integer(v value, key string, least, most int, to *int) {
	got, ok := d.unsigned(v, key, uint64(least), uint64(most))
	if ok {
		*to = int(got)
	}
}

// unsigned reads a decimal number without sign, leading zeros or underscores:
// YAML 1.1 and 1.2 disagree about 010, so it is not taken.
func (d *decoder) unsigned(v value, key string, least, most uint64) (uint64, bool) {
	want := fmt.Sprintf("an integer from %d to %d", least, most)
	text, ok := d.scalar(v, key, want)
	if !ok {
		return 0, false
	}
	got, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(got, 10) != text || got < least || got > most {
		d.report.bad(v, key, "want %s", want)
		return 0, false
	}
	return got, true
}

// A sizeUnit is what a size may be given in.
type sizeUnit struct {
	name  string
	bytes uint64
}

// sizeUnits returns the units, the largest first.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}}
}

// size reads a number of bytes: a decimal number, alone or with one of the units behind it.
// Units of a thousand are not taken, nor is a lone letter, which means both.
func (d *decoder) size(v value, key string, least, most int64, to *int64) {
	want := fmt.Sprintf("a size from %s to %s, such as 64MiB (in KiB, MiB, GiB, TiB, or bytes)",
		showSize(least), showSize(most))
	text, ok := d.scalar(v, key, want)
	if !ok {
		return
	}
	number, times := text, uint64(1)
	for _, unit := range sizeUnits() {
		if before, found := strings.CutSuffix(text, unit.name); found {
			number, times = strings.TrimSuffix(before, " "), unit.bytes
			break
		}
	}
	got, err := strconv.ParseUint(number, 10, 64)
	if err != nil || strconv.FormatUint(got, 10) != number || got > uint64(most)/times ||
		got*times < uint64(least) {
		d.report.bad(v, key, "want %s", want)
		return
	}
	*to = int64(got * times)
}

// showSize returns a size in the largest unit of which it is a multiple.
func showSize(bytes int64) string {
	for _, unit := range sizeUnits() {
		if whole := int64(unit.bytes); bytes > 0 && bytes%whole == 0 {
			return strconv.FormatInt(bytes/whole, 10) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}

const (
	wantAddress  = "want host:port, such as 127.0.0.1:8700"
	hintNoScheme = "no scheme here"
	hintBrackets = "an IPv6 host stands in brackets, such as [::1]:8700"
)

// address reads host:port; the host may be empty, the port may not be zero.
func (d *decoder) address(v value, key string, to *string) {
	text, ok := d.scalar(v, key, strings.TrimPrefix(wantAddress, "want "))
	if !ok {
		return
	}
	if want, hint := checkAddress(text); want != "" {
		d.report.add(Problem{Origin: v.origin, Key: key, Value: text, Want: want, Hint: hint})
		return
	}
	*to = text
}

// checkAddress returns what is wanted instead of text, or nothing.
func checkAddress(text string) (want, hint string) {
	if strings.Contains(text, "://") {
		return wantAddress, hintNoScheme
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if strings.Count(text, ":") > 1 {
			return wantAddress, hintBrackets
		}
		return wantAddress, ""
	}
	if strings.ContainsAny(host, " \t/\x00") {
		return wantAddress, ""
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return wantAddress, "the port is a number from 1 to 65535"
	}
	return "", ""
}

// A key of a mapping and what reads its value.
type entry struct {
	name   string
	read   func(v value, key string)
	hidden bool // not offered to who wrote an unknown key
}

// mapping hands the fields of v to entries. Keys that no entry knows and keys
// that come twice are reported. It returns the names that were there.
func (d *decoder) mapping(v value, prefix string, entries []entry) map[string]bool {
	seen := make(map[string]bool, len(v.fields))
	for i := range v.fields {
		f := &v.fields[i]
		key := join(prefix, f.name)
		at := slices.IndexFunc(entries, func(e entry) bool { return e.name == f.name })
		switch {
		case at < 0:
			d.unknown(f, prefix, entries)
		case seen[f.name]:
			d.report.add(Problem{Origin: f.origin, Key: key, Want: "given twice, want it once"})
		default:
			seen[f.name] = true
			entries[at].read(f.value, key)
		}
	}
	return seen
}

func (d *decoder) unknown(f *field, prefix string, entries []entry) {
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.hidden {
			names = append(names, e.name)
		}
	}
	d.report.add(Problem{
		Origin: f.origin,
		Key:    join(prefix, f.name),
		Value:  f.value.describe(),
		Want:   "unknown key, want one of " + strings.Join(names, ", "),
		Hint:   meant(f.name, names),
	})
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// meant returns a hint when text is one or two slips away from one of words.
func meant(text string, words []string) string {
	best, least := "", 3
	for _, word := range words {
		if far := distance(text, word); far < least && far < len(word) {
			best, least = word, far
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// distance is the number of single-character edits between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
