package admin

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/raftyard/raftyard/node"
)

// metrics is the registry of one handler. It shares nothing with the default one.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	bodies   prometheus.Gauge
	answers  prometheus.Gauge
	scrape   http.Handler
}

func newMetrics(
	ofNode func() node.Metrics, connections func() int, ofServer func() []limited,
) (*metrics, error) {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raftyard_http_requests_total",
			Help: "HTTP requests answered, by route, method and status.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "raftyard_http_request_seconds",
			Help:    "Time from an HTTP request's header to the end of its answer, by route.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12), // 0.5 ms to 12 s
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "raftyard_http_requests_in_flight",
			Help: "HTTP requests that are being served.",
		}),
		bodies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "raftyard_http_body_bytes",
			Help: "Bodies of HTTP requests that are in memory.",
		}),
		answers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "raftyard_http_answer_bytes",
			Help: "Values in memory whose HTTP answers are not sent yet, and room kept for them.",
		}),
	}
	all := []prometheus.Collector{
		m.requests, m.seconds, m.inFlight, m.bodies, m.answers,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	if connections != nil {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "raftyard_http_connections",
			Help: "Connections to the HTTP port.",
		}, func() float64 { return float64(connections()) }))
	}
	if ofNode != nil {
		all = append(all, newNodeCollector(ofNode, ofServer))
	}
	var errs []error
	for _, c := range all {
		errs = append(errs, m.registry.Register(c))
	}
	m.scrape = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
	return m, errors.Join(errs...)
}

// observe counts a request. Its labels come from short lists: an odd method is
// other, and a path without a route is too.
func (m *metrics) observe(route, method string, code int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) serve(c *call) error {
	m.scrape.ServeHTTP(c.w, c.r)
	return nil
}
