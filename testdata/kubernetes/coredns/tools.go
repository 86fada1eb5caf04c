//go:build tools

// Package coredns names the name server that scripts/kubernetes builds, so that go.mod pins it.
package coredns

import _ "github.com/coredns/coredns"
