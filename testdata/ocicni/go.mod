module ocicni

go 1.21

require github.com/cri-o/ocicni v0.4.3

require (
	github.com/Masterminds/semver/v3 v3.2.1 // indirect
	github.com/containernetworking/cni v1.2.0 // indirect
	github.com/containernetworking/plugins v1.4.1 // indirect
	github.com/fsnotify/fsnotify v1.7.0 // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
	github.com/vishvananda/netlink v1.2.1-beta.2 // indirect
	github.com/vishvananda/netns v0.0.4 // indirect
	golang.org/x/sys v0.19.0 // indirect
)
