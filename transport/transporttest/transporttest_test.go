package transporttest_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/raftyard/raftyard/transport"
	"github.com/raftyard/raftyard/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTCP(t *testing.T) {
	transporttest.Run(t, func(*testing.T) transporttest.Start {
		return func(cfg transport.Config) (*transport.Transport, error) {
			cfg.Listen = "127.0.0.1:0"
			return transport.Listen(cfg)
		}
	})
}

func TestMemory(t *testing.T) {
	transporttest.Run(t, func(*testing.T) transporttest.Start {
		m := transport.NewMemory(1)
		var n atomic.Int32
		return func(cfg transport.Config) (*transport.Transport, error) {
			cfg.Listen = "endpoint " + strconv.Itoa(int(n.Add(1)))
			return m.Endpoint(cfg)
		}
	})
}
