//go:build tools

// Package router names the other program that enforces network policies, which scripts/bench builds, so that go.mod pins it.
package router

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
