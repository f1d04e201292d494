package admin

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard/client"
)

// checkAddress refuses what nobody could dial. name is what the body calls it.
func checkAddress(name, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || strings.ContainsAny(host, " \t\r\n/\x00") ||
		portErr != nil || number == 0 {
		return newProblem(client.CodeInvalid,
			"%s is %q, want host:port, such as n4.example:8701", name, addr)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return newProblem(client.CodeInvalid,
			"%s is %q, which others cannot dial: want a host that they can", name, addr)
	}
	return nil
}
