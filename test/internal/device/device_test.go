package device

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTaken: what is written and synced the device has taken, where there is one.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	before, err := Taken(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	if _, err = f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err = SyncData(f); err != nil {
		t.Fatal(err)
	}
	after, err := Taken(dir)
	if err != nil {
		t.Fatal(err)
	}
	if before > 0 && after-before < size || after < before {
		t.Errorf("the device has taken %d bytes and then %d, want %d more at least",
			before, after, size)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
	if err = SyncData(f); err == nil {
		t.Error("a file that is closed is synced")
	}
	if _, err = Taken(filepath.Join(dir, "none")); err == nil && before > 0 {
		t.Error("a directory that there is not has a device")
	}
}
