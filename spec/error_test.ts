import { expect, test } from "bun:test";
import fc from "fast-check";
import { NetlinkError } from "../ffi/netlink/error.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { CniError, Code, ConfigError } from "./error.ts";

const subnet = new ConfigError("ipam.subnet", 'a CIDR such as "10.1.0.0/16"', '"10.1.0.0/33"');
const broken = new CniError(Code.TryAgainLater, "Cannot reach the daemon: it restarts", { details: "socket /run/x" });

test("ConfigError names network, path, expectation and value", () => {
  expect(subnet.withLocation({ network: "web" }).message).toBe(
    'Cannot use network "web": ipam.subnet must be a CIDR such as "10.1.0.0/16": got "10.1.0.0/33"',
  );
  expect(subnet.message).toStartWith("Cannot use configuration: ipam.subnet must be");
  expect(new ConfigError("", "an object", "[]").message).toBe(
    "Cannot use configuration: the document must be an object: got []",
  );
});

test("toJSON() prints the specification's keys in order, details only if there are any", () => {
  expect(JSON.stringify(broken.toJSON("1.1.0"))).toBe(
    '{"cniVersion":"1.1.0","code":11,"msg":"Cannot reach the daemon: it restarts","details":"socket /run/x"}',
  );
  expect(Object.keys(new CniError(Code.Internal, "x", { details: "" }).toJSON("0.4.0"))).toEqual([
    "cniVersion",
    "code",
    "msg",
  ]);
});

const RIGHTS = "run as root (CAP_NET_ADMIN, CAP_SYS_ADMIN)";
const file = new SystemError("openat", 2, 'open "/x"');
for (
  const [name, error, code, message, details] of [
    ["a CniError", broken, 11, broken.message, broken.details],
    [
      "a ConfigError",
      subnet.withLocation({ file: "/n/a.conflist", line: 3, column: 9 }),
      7,
      subnet.message,
      "/n/a.conflist:3:9",
    ],
    ["a SyntaxError", new SyntaxError("Cannot parse x: no"), 6, "Cannot parse x: no", undefined],
    ["a failed file operation", file, 5, file.message, undefined],
    [
      "a wait that was interrupted",
      new SystemError("flock", 4, 'lock "/x"'),
      11,
      'Cannot lock "/x": Interrupted system call (EINTR)',
      "the process was asked to end",
    ],
    [
      "a list that kept changing",
      new NetlinkError({ request: "RTM_GETLINK", errno: 85, extack: "The list kept changing" }, "list links"),
      11,
      "Cannot list links: Interrupted system call should be restarted (ERESTART, The list kept changing)",
      undefined,
    ],
    [
      "a failed setns",
      new SystemError("setns", 1),
      999,
      "Cannot call setns: Operation not permitted (EPERM)",
      RIGHTS,
    ],
    [
      "a refusal by netlink",
      new CniError(11, "Cannot x", { details: "why", cause: new NetlinkError({ request: "RTM_NEWLINK", errno: 1 }) }),
      11,
      "Cannot x",
      `why; ${RIGHTS}`,
    ],
    [
      "a refusal that root would meet too",
      new NetlinkError({ request: "RTM_NEWADDR", errno: 13 }, "add it"),
      999,
      "Cannot add it: Permission denied (EACCES)",
      undefined,
    ],
    [
      "a file of others",
      new SystemError("openat", 13, "open it"),
      5,
      "Cannot open it: Permission denied (EACCES)",
      RIGHTS,
    ],
    [
      "a file that root cannot change either",
      new SystemError("unlink", 1, 'remove "/x"'),
      5,
      'Cannot remove "/x": Operation not permitted (EPERM)',
      process.geteuid!() === 0 ? "the file or its directory may be immutable, see lsattr" : RIGHTS,
    ],
    [
      "a link of others",
      new SystemError("readlink", 13, 'read link "/x"'),
      5,
      'Cannot read link "/x": Permission denied (EACCES)',
      RIGHTS,
    ],
    [
      "a SuppressedError that says the same twice",
      new SuppressedError(new CniError(7, "Cannot x"), new CniError(7, "Cannot x")),
      7,
      "Cannot x",
      "clean-up failed for the same reason",
    ],
    ["any Error", new RangeError("Cannot x: y"), 999, "Cannot x: y", undefined],
    ["an Error without message", new TypeError(), 999, "TypeError", undefined],
    [
      "a wrapped file error",
      new Error("Cannot reserve: store", { cause: file }),
      5,
      "Cannot reserve: store",
      undefined,
    ],
    [
      "a wrapped CniError",
      new Error("Cannot delegate to x", { cause: broken }),
      11,
      "Cannot delegate to x",
      `${broken.message}; ${broken.details}`,
    ],
    [
      "a SuppressedError",
      new SuppressedError(new Error("undo 2"), new SuppressedError(new Error("undo 1"), broken)),
      11,
      broken.message,
      "socket /run/x; clean-up failed: undo 1; clean-up failed: undo 2",
    ],
    [
      "an AggregateError",
      new AggregateError([broken, subnet], "Cannot clean up"),
      11,
      "Cannot clean up",
      `${broken.message}; ${broken.details}; ${subnet.message}`,
    ],
    ["an AggregateError without message", new AggregateError([file, subnet]), 5, file.message, subnet.message],
    ["an empty AggregateError", new AggregateError([], "Cannot x: none"), 999, "Cannot x: none", undefined],
    ["a string", "no", 999, "no", undefined],
    ["an empty string", "", 999, 'Cannot go on: got ""', undefined],
    ["undefined", undefined, 999, "Cannot go on: got undefined", undefined],
    ["null", null, 999, "Cannot go on: got null", undefined],
    ["a symbol", Symbol("s"), 999, "Cannot go on: got Symbol(s)", undefined],
    ["a plain object", { code: 7 }, 999, 'Cannot go on: got {"code":7}', undefined],
  ] as [string, unknown, number, string, string | undefined][]
) {
  test(`CniError.from() converts ${name}`, () => {
    const converted = CniError.from(error);
    expect([converted.code, converted.message, converted.details]).toEqual([code, message, details]);
  });
}

test("CniError.from() survives cycles and hostile values", () => {
  const cyclicCause = new Error("a");
  cyclicCause.cause = cyclicCause;
  const cyclicAggregate = new AggregateError([], "b");
  cyclicAggregate.errors.push(cyclicAggregate);
  const cyclicObject: Record<string, unknown> = {};
  cyclicObject.self = cyclicObject;
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const getter = Object.defineProperty(new Error(), "message", { get: () => JSON.parse("{") });
  for (const value of [cyclicCause, cyclicAggregate, cyclicObject, revoked.proxy, getter, 1n, () => {}]) {
    expect(CniError.from(value)).toBeInstanceOf(CniError);
    expect(typeof JSON.stringify(CniError.from(value).toJSON("1.0.0"))).toBe("string");
  }
});

test("CniError.from() never throws", () => {
  fc.assert(fc.property(fc.anything({ withBigInt: true, withNullPrototype: true, withDate: true }), (value) => {
    for (
      const each of [
        value,
        new Error("x", { cause: value }),
        new AggregateError([value]),
        new SuppressedError(value, value),
      ]
    ) {
      expect(CniError.from(each).code).toBe(999);
    }
  }));
});

test("CniError.from() says once that rights are missing, however often an error is told on", () => {
  const denied = new SystemError("setns", 1);
  const once = CniError.from(denied);
  const again = CniError.from(
    new CniError(once.code, `plugin "x" (ADD): ${once.message}`, {
      details: `x.conflist:1:2; ${once.details}`,
      cause: once,
    }),
  );
  expect(again.details).toBe(`x.conflist:1:2; ${RIGHTS}`);
  expect(CniError.from(new SuppressedError(denied, denied)).details).toBe(
    `clean-up failed for the same reason; ${RIGHTS}`,
  );
});
