export const DEFAULT_NETWORK_NAME = "default";

/** Engines can read it too: people copy it. A bridge with IPv4, IPv6, masquerading and published ports, whatever iptables drops. */
export const DEFAULT_NETWORK = `{
  "cniVersion": "1.0.0",
  "cniVersions": ["1.0.0", "1.1.0"],
  "name": "default",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "capabilities": { "ips": true, "mac": true },
      "ipam": {
        "type": "host-local",
        "ranges": [[{ "subnet": "10.63.0.0/16" }], [{ "subnet": "fd5c:9e21:7b3f::/64" }]],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } },
    { "type": "firewall" }
  ]
}
`;
