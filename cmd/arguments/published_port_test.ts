import { expect, test } from "bun:test";
import { UsageError } from "../../program/usage_error.ts";
import { parsePublishedPort, type PublishOption } from "./published_port.ts";

test.each<[string, object]>([
  ["8080:80", { hostPort: 8080, containerPort: 80, protocol: "tcp" }],
  ["53:53/udp", { hostPort: 53, containerPort: 53, protocol: "udp" }],
  ["1:65535/SCTP", { hostPort: 1, containerPort: 65535, protocol: "sctp" }],
  ["127.0.0.1:8080:80/udp", { hostPort: 8080, containerPort: 80, protocol: "udp", hostIP: "127.0.0.1" }],
  ["[::1]:53:53/udp", { hostPort: 53, containerPort: 53, protocol: "udp", hostIP: "::1" }],
  ["[FD00:0::1]:1:2", { hostPort: 1, containerPort: 2, protocol: "tcp", hostIP: "fd00::1" }],
])("parsePublishedPort() reads %j", (text, expected) => {
  expect(parsePublishedPort(text)).toEqual(expected as PublishOption);
});

test.each([
  ["", "expected"],
  ["80", "expected"],
  ["80:", "expected"],
  [":80:80", "not an IP address"],
  ["a:80", "expected"],
  ["-1:80", "expected"],
  ["80-90:80-90", "expected"],
  ["::1:53:53", "expected"],
  ["[]:1:1", "not an IP address"],
  ["localhost:80:80", "not an IP address"],
  ["10.0.0.256:80:80", "not an IP address"],
  ["0:80", "from 1 to 65535"],
  ["80:65536", "from 1 to 65535"],
  ["80:80/icmp", "tcp, udp or sctp"],
  ["80:80/", "expected"],
  ["80:80\n", "expected"],
])("parsePublishedPort() refuses %j", (text, message) => {
  expect(() => parsePublishedPort(text)).toThrow(UsageError);
  expect(() => parsePublishedPort(text)).toThrow(message);
});
