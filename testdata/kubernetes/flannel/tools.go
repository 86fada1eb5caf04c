//go:build tools

// Package flannel names the other network for clusters that scripts/kubernetes builds, so that go.mod pins it.
package flannel

import _ "github.com/flannel-io/flannel"
