import { beforeAll, expect, test } from "bun:test";
import { EEXIST } from "../../ffi/sys/errno.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { CniError, Code } from "../../spec/error.ts";
import { forbidDescriptors } from "../../testing/descriptor_limit.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkByPlugins } from "./checks/plugins.ts";
import { remedyForInconclusive } from "./inconclusive.ts";

beforeAll(() => loadPlugins());

test("a CHECK that needs more open files than this process may have says nothing of the container", () => {
  using doctorHost = newDoctorHost();
  const findings = doctorHost.withSubject((subject) => {
    using _ = forbidDescriptors();
    return checkByPlugins(subject);
  });
  expect(findings).toHaveLength(2);
  for (const finding of findings) {
    expect(finding).toMatchObject({
      severity: "warning",
      what: expect.stringContaining("Too many open files (EMFILE)"),
      mend: "ulimit -n 65536",
    });
  }
});

test("a cause that will pass is no finding, and others are", () => {
  const ENFILE = 23;
  const ENOMEM = 12;
  const failures = [
    new CniError(Code.TryAgainLater, "interrupted"),
    new CniError(Code.Internal, "CHECK failed", { cause: new AggregateError([new SystemError("openat", ENFILE)]) }),
    new SystemError("mmap", ENOMEM),
    new SystemError("openat", EEXIST),
    new CniError(Code.Internal, "the address is missing"),
  ];
  expect(failures.map((error) => remedyForInconclusive(error, "web"))).toEqual([
    "cni doctor web",
    { advice: "raise fs.file-max by sysctl -w, then examine again" },
    { advice: "free some memory, then examine again" },
    undefined,
    undefined,
  ]);
});
