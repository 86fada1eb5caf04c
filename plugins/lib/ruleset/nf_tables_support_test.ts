import { expect, test } from "bun:test";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { EINVAL, EPERM } from "../../../ffi/sys/errno.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { removeRulesIfSupported } from "./nf_tables_support.ts";

const EPROTONOSUPPORT = 93;
/** A host whose kernel has nothing for rules. */
const without = {
  get nft(): Netlink {
    throw new SystemError("socket", EPROTONOSUPPORT);
  },
};
const failing = (errno: number) => () => {
  throw new SystemError("send", errno);
};

test("rules that nobody asks for are no matter where the kernel knows none", () => {
  removeRulesIfSupported(without, false, () => {});
  removeRulesIfSupported({ nft: {} as Netlink }, false, failing(EINVAL));
  expect(() => removeRulesIfSupported(without, true, () => {})).toThrow(SystemError);
  expect(() => removeRulesIfSupported({ nft: {} as Netlink }, true, failing(EINVAL))).toThrow(SystemError);
});

test("what keeps rules from being removed is told, also where nobody asks for them", () => {
  expect(() => removeRulesIfSupported({ nft: {} as Netlink }, false, failing(EPERM))).toThrow(SystemError);
});
