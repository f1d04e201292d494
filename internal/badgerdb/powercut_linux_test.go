package badgerdb

import (
	"bufio"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cutEnv makes the test one of its two children: the one that cuts the power, in a mount
// namespace of its own, and the one that writes. Its value is [cutPower] or [cutWriter].
const cutEnv = "RAFTYARD_POWER_CUT"

// What the children are told, as the values of cutEnv.
const (
	cutPower  = "power"  // cut the power so many times, as cutArgs says
	cutWriter = "writer" // write, as cutArgs says
	cutMaker  = "maker"  // make a database
	cutArgs   = "RAFTYARD_POWER_CUT_ARGS"

	// cutProfile is that of the database: log or state.
	cutProfile = "RAFTYARD_POWER_CUT_PROFILE"
)

// TestPowerCuts cuts the power of a file system under a database that is written, with small
// memtables so that it begins a log every few dozen commits. What was acknowledged must be
// there, and what is there must be all that was written until some commit. To cut the power is
// to have the file system write nothing more to its device, which is a file, from one moment
// on, and to take it away: what was only in memory is lost, and so is the end of its journal.
//
// With a sync that is wrong the test must find that something is lost.
func TestPowerCuts(t *testing.T) {
	switch os.Getenv(cutEnv) {
	case cutWriter:
		writeUntilCut(t)
		return
	case cutMaker:
		mustOpen(t, cutOptions(madeDir))
		select {} // it is killed
	case cutPower:
		cutUntilDone(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("a file system of its own takes root")
	}
	for _, program := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	cuts := 8
	if os.Getenv("RAFTYARD_TEST_SCALE") == "full" {
		cuts = 150
	}
	for _, name := range []string{
		"state/" + syncWell, "state/" + syncNever, "state/" + syncStays, "state/" + syncLate,
		"log/" + syncWell, "log/" + syncNever,
	} {
		t.Run(name, func(t *testing.T) {
			profile, sync, _ := strings.Cut(name, "/")
			cmd := exec.CommandContext(t.Context(), os.Args[0],
				"-test.run=^TestPowerCuts$", "-test.v")
			cmd.Env = append(os.Environ(), cutEnv+"="+cutPower, cutProfile+"="+profile,
				cutArgs+"="+strconv.Itoa(cuts)+"/"+sync)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) {
				t.Skipf("no mount namespace: %v", err)
			}
			t.Logf("%s", out)
			if err != nil {
				t.Fatalf("the child: %v", err)
			}
			if strings.Contains(string(out), "--- SKIP") {
				t.Skip("the child has done nothing")
			}
		})
	}
}

// A powerCut is the child that cuts the power: the file system that it cuts.
type powerCut struct {
	t           *testing.T
	image, mnt  string
	sync        string
	acked       uint64 // the last commit that was acknowledged before the cut
	said        uint64 // the last one of which the writer says so, perhaps while it was cut
	rotations   int    // logs that were begun by commits that were acknowledged
	atRotations int    // cuts right after such a commit
	model       cutModel
}

func cutUntilDone(t *testing.T) {
	number, sync, _ := strings.Cut(os.Getenv(cutArgs), "/")
	cuts, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("mounts cannot be kept to this process: %v", err)
	}
	dir := t.TempDir()
	c := &powerCut{
		t: t, image: filepath.Join(dir, "image"), mnt: filepath.Join(dir, "mnt"), sync: sync,
		model: cutModel{values: make(map[string]string)},
	}
	if err := os.Mkdir(c.mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	c.run("truncate", "-s", "512M", c.image)
	c.run("mkfs.ext4", "-q", "-F", c.image)
	dice := rand.New(rand.NewPCG(uint64(cuts), 5))
	var lost error
	for i := range cuts {
		c.mount()
		c.write(i, dice)
		c.run("umount", c.mnt)
		c.mount()
		lost = c.check()
		c.run("umount", c.mnt)
		if lost != nil {
			t.Logf("lost at cut %d, after commit %d was acknowledged: %v", i, c.acked, lost)
			break
		}
	}
	if well := sync == syncWell; well != (lost == nil) {
		t.Errorf("the sync is well: %t; what was lost: %v", well, lost)
	}
	t.Logf("%d commits acknowledged, %d of them have begun a log; %d cuts right after such a one",
		c.acked, c.rotations, c.atRotations)
}

func (c *powerCut) run(name string, args ...string) {
	c.t.Helper()
	if out, err := exec.CommandContext(c.t.Context(), name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

func (c *powerCut) mount() {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), "mount", "-o", "loop", c.image, c.mnt).
		CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(out), "loop device"), strings.Contains(string(out), "permi"):
		c.t.Skipf("no loop device, or it may not be mounted: %s", out)
	default:
		c.t.Fatalf("mount: %v: %s", err, out)
	}
}

// write has the database written until a cut of the power, in one of four ways: right after a
// commit that has begun a log was acknowledged; in the midst of some commit; or after one that
// follows a kill between a write and its sync. In the last one it is another database, which is
// just being made.
func (c *powerCut) write(cut int, dice *rand.Rand) {
	switch cut % 4 {
	case 0:
		c.writer(c.sync, true, func(_ int, begun bool) bool { return begun })
		c.atRotations++
	case 1:
		commits := dice.IntN(300)
		c.writer(c.sync, false, func(n int, _ bool) bool { return n == commits })
	case 2:
		c.writer(syncKills+strconv.Itoa(1+dice.IntN(100)), false,
			func(int, bool) bool { return false })
		c.writer(c.sync, true, func(int, bool) bool { return true })
	default:
		c.maker(time.Duration(dice.IntN(int(3 * time.Millisecond))))
	}
}

// maker has another process make a database, and cuts the power so long after it has begun its
// first table.
func (c *powerCut) maker(after time.Duration) {
	t := c.t
	made := filepath.Join(c.mnt, madeDir)
	if err := os.RemoveAll(made); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPowerCuts$")
	cmd.Env = append(os.Environ(), cutEnv+"="+cutMaker)
	cmd.Dir = c.mnt
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(time.Minute); ; runtime.Gosched() {
		tables, err := filepath.Glob(filepath.Join(made, "*.sst"))
		if err != nil || time.Now().After(until) {
			t.Fatalf("no table: %v", err)
		}
		if len(tables) > 0 {
			break
		}
	}
	for until := time.Now().Add(after); time.Now().Before(until); {
		runtime.Gosched()
	}
	c.cut()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, or could not go on
}

// writer has another process write the database, one commit at a time if it is told so, and
// cuts the power after a commit of which cut, with how many there were before and whether this
// one has begun a log, says so.
func (c *powerCut) writer(sync string, lockStep bool, cut func(n int, begun bool) bool) {
	t := c.t
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPowerCuts$")
	cmd.Env = append(os.Environ(), cutEnv+"="+cutWriter, cutArgs+"="+sync)
	cmd.Dir = c.mnt
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	goOn := func(commits int) {
		if _, err = in.Write(make([]byte, commits)); err != nil && !errors.Is(err, unix.EPIPE) {
			t.Fatal(err)
		}
	}
	if goOn(1); !lockStep {
		goOn(4 << 10) // more than it gets to write
	}
	said := ""
	over := false
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); {
		said = lines.Text()
		begun, acked := c.note(said)
		if !acked || over {
			continue
		}
		c.acked = c.said
		if over = cut(n, begun); over {
			c.cut()
			if err = cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		} else if lockStep {
			goOn(1)
		}
		n++
	}
	err = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed := ok && status.Signal() == syscall.SIGKILL
	if !over && !killed {
		t.Fatalf("the writer has ended: %v: %s", err, said)
	}
}

// cut cuts the power: nothing is written any more, not even the journal that is in memory.
func (c *powerCut) cut() {
	mnt, err := os.Open(c.mnt)
	if err != nil {
		c.t.Fatal(err)
	}
	err = unix.IoctlSetPointerInt(int(mnt.Fd()), fsShutdown, shutdownNow)
	if err = errors.Join(err, mnt.Close()); err != nil {
		c.t.Fatalf("cut the power: %v", err)
	}
}

// What ext4 and XFS are told to stop with: FS_IOC_SHUTDOWN without flushing the journal.
const (
	fsShutdown  = 0x8004587d // _IOR('X', 125, uint32)
	shutdownNow = 2
)

// note takes in what the writer says: of a commit, or something else. A commit that it tells of
// after the cut may be there or not: ext4 may tell a sync that comes in between that all is well.
func (c *powerCut) note(line string) (begun, acked bool) {
	said, acked := strings.CutPrefix(line, ackedText)
	if !acked {
		return false, false
	}
	number, what, _ := strings.Cut(said, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n <= c.said {
		c.t.Fatalf("the writer says %q after commit %d", line, c.said)
	}
	c.said = n
	if begun = what == begunText; begun {
		c.rotations++
	}
	return begun, true
}

// check opens the database after a cut, and compares what is there with what was written.
func (c *powerCut) check() error {
	db, err := Open(cutOptions(filepath.Join(c.mnt, cutDir)))
	if err != nil {
		return err
	}
	err = c.model.check(c.t, db, c.acked, c.said)
	c.acked, c.said = c.model.upTo, c.model.upTo
	err = errors.Join(err, db.Close())
	made := filepath.Join(c.mnt, madeDir)
	if _, none := os.Stat(made); err != nil || none != nil {
		return err
	}
	if db, err = Open(cutOptions(made)); err != nil {
		return err
	}
	return db.Close()
}

func cutOptions(dir string) Options {
	o := Options{Dir: dir, MemTableSize: MinMemTableSize, Profile: State}
	if os.Getenv(cutProfile) == Log.String() {
		o.Profile = Log // which leaves values in the journal
	}
	return o
}
