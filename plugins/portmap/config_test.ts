import { expect, test } from "bun:test";
import { parsePortmapConfig } from "./config.ts";
import { portMappingConfig } from "../../testing/portmap.ts";

test("keys, protocols and empty values are read as the ecosystem writes them", () => {
  const config = parsePortmapConfig({
    Backend: "",
    SNAT: false,
    RuntimeConfig: {
      portmappings: [{ HostPort: 1, ContainerPort: 2, Protocol: "UDP", HostIP: "" }, {
        hostPort: 3,
        containerPort: 4,
        protocol: "",
      }],
    },
  });
  expect(config).toEqual({
    mappings: [{ hostPort: 1, containerPort: 2, protocol: "udp" }, { hostPort: 3, containerPort: 4, protocol: "tcp" }],
    snat: false,
    masqAll: false,
    conditions: {},
    hostPortInUse: "refuse",
  });
});

for (
  const [given, kept] of [
    [[undefined, undefined], [undefined]],
    [[undefined, "0.0.0.0"], [undefined]],
    [["0.0.0.0", "::", undefined], [undefined]],
    [["::", "0.0.0.0", "::"], ["::", "0.0.0.0"]],
    [["127.0.0.1", "::ffff:127.0.0.1", undefined], ["127.0.0.1", undefined]],
  ] as const
) {
  test(`a mapping is kept once, however its address is written: ${given}`, () => {
    const mappings = given.map((hostIP) => ({ hostPort: 1, containerPort: 2, ...hostIP && { hostIP } }));
    expect(parsePortmapConfig(portMappingConfig(mappings)).mappings.map(({ hostIP }) => hostIP)).toEqual(
      [...kept] as never,
    );
  });
}

for (
  const [config, message] of [
    [{ backend: "ipfw" }, 'backend must be "nftables" or "iptables": got "ipfw"'],
    [{ hostPortInUse: "steal" }, 'hostPortInUse must be "refuse", "warn" or "ignore": got "steal"'],
    [{ markMasqBit: 32 }, "markMasqBit must be a whole number from 0 to 31: got 32"],
    [
      { markMasqBit: 1, externalSetMarkChain: "X" },
      'externalSetMarkChain must be absent when markMasqBit is set: got "X"',
    ],
    [
      portMappingConfig([{ hostPort: 65536, containerPort: 1 }]),
      "portMappings[0].hostPort must be a whole number from 1 to 65535: got 65536",
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 0 }]),
      "portMappings[0].containerPort must be a whole number from 1 to 65535: got 0",
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1, protocol: "icmp" }]),
      'portMappings[0].protocol must be "tcp", "udp" or "sctp": got "icmp"',
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1, hostIP: "localhost" }]),
      'portMappings[0].hostIP must be an IP address such as "10.1.0.2": got "localhost"',
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1 }, { hostPort: 1, containerPort: 2 }]),
      "portMappings[1] must be the only mapping of host port 1/tcp: got one to container port 2 besides one to 1",
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1 }, { hostPort: 1, containerPort: 2, hostIP: "0.0.0.0" }]),
      "portMappings[1] must be the only mapping of host port 0.0.0.0:1/tcp: got one to container port 2 besides one to 1",
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1, hostIP: "::" }, { hostPort: 1, containerPort: 2 }]),
      "portMappings[1] must be the only mapping of host port 1/tcp: got one to container port 2 besides one to 1",
    ],
    [
      portMappingConfig([{ hostPort: 1, containerPort: 1, hostIP: "127.0.0.1" }, {
        hostPort: 1,
        containerPort: 2,
        hostIP: "::ffff:127.0.0.1",
      }]),
      "must be the only mapping of host port 127.0.0.1:1/tcp: got one to container port 2 besides one to 1",
    ],
    [
      { conditionsV4: ["-m", "mac"] },
      'conditionsV4 must be conditions such as -s, -d, -i, "ip saddr", "ip daddr" or "iifname": got "-m"',
    ],
    [
      { conditionsV4: ["-s", "fd00::/8"] },
      'conditionsV4 must be an IPv4 address or network in a condition: got "fd00::/8"',
    ],
    [
      { conditionsV6: ["ip", "saddr", "10.0.0.0/8"] },
      'conditionsV6 must be conditions such as -s, -d, -i, "ip6 saddr", "ip6 daddr" or "iifname": got "ip"',
    ],
    [{ conditionsV4: ["ip", "protocol"] }, 'conditionsV4 must be "saddr" or "daddr" behind "ip": got "protocol"'],
    [{ conditionsV4: ["-d"] }, "conditionsV4 must be an IPv4 address or network in a condition: got nothing more"],
    [
      { conditionsV4: ["iifname", "a-name-that-is-too-long"] },
      'conditionsV4 must be an interface name in a condition: got "a-name-that-is-too-long"',
    ],
  ] as const
) {
  test(`a configuration is refused: ${message}`, () => {
    expect(() => parsePortmapConfig(config)).toThrow(message);
  });
}
