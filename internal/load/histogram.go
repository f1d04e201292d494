package load

import (
	"math"
	"math/bits"
	"time"
)

const (
	// subBits is the resolution: a power of two has 2^subBits buckets, so that a
	// quantile is at most 1/2^subBits, 1.6 %, above the true one.
	subBits = 6
	subs    = 1 << subBits
	// maxBits is the range: all from 2^maxBits ns on, more than an hour, is alike.
	maxBits = 42
)

// A Histogram counts durations in buckets that grow with them. The zero value is empty.
type Histogram struct {
	n       uint64
	sum     float64 // of nanoseconds
	longest time.Duration
	buckets [(maxBits - subBits + 1) * subs]uint64
}

// Add counts a duration. A negative one counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.sum += float64(d)
	h.longest = max(h.longest, d)
	h.buckets[bucketOf(d)]++
}

// Merge adds what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	h.n += other.n
	h.sum += other.sum
	h.longest = max(h.longest, other.longest)
	for i, n := range &other.buckets {
		h.buckets[i] += n
	}
}

// Count returns how many durations there are.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the longest duration, exactly; zero: there is none.
func (h *Histogram) Max() time.Duration { return h.longest }

// Mean returns the average; zero: there is none.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile returns a duration that at least the share q of all do not exceed, from 0 to 1.
// It may be 1.6 % above the least one of which that is true, never below, and is the
// longest beyond the range; zero: there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := max(uint64(math.Ceil(q*float64(h.n))), 1)
	var seen uint64
	for i, n := range &h.buckets {
		if seen += n; seen >= rank && i < len(h.buckets)-1 {
			return min(upper(i), h.longest)
		}
	}
	return h.longest
}

// bucketOf returns the bucket of a duration: exact below subs, and from there on subs
// buckets for each doubling.
func bucketOf(d time.Duration) int {
	v := min(uint64(d), 1<<maxBits-1)
	if v < subs {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return shift*subs + int(v>>shift)
}

// upper returns the longest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < subs {
		return time.Duration(bucket)
	}
	shift := bucket/subs - 1
	lead := uint64(bucket - shift*subs)
	return time.Duration((lead+1)<<shift - 1)
}
