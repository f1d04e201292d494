package config

import _ "embed"

//go:embed example.yaml
var example string

// Example returns a whole configuration file with comments. It can be loaded as
// it is.
func Example() string { return example }
