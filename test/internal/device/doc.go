// Package device has what measurements need of a disk: a sync that does nothing but what a
// log needs, and how much the disk has taken.
package device
