import { expect, test } from "bun:test";
import { CniError } from "../../../spec/error.ts";
import { NotRunError } from "./response.ts";
import type { HostContext } from "./context.ts";
import { ipamDelegate } from "./delegate.ts";
import type { PluginRequest, PluginResponse } from "./request.ts";

/** Calls ADD of a delegate that answers in this way, and then fails for another reason; gives what it was asked, and the failure. */
function attempt(answer: (command: string) => PluginResponse): { asked: string[]; failure: CniError } {
  const asked: string[] = [];
  const context = {
    invoke(_location: unknown, { command }: { readonly command: string }) {
      asked.push(command);
      return answer(command);
    },
  } as Partial<HostContext> as HostContext;
  const ipam = { type: "ipam", locate: () => ({ program: "/ipam", shadowsBuiltin: false }) };
  try {
    using undo = new DisposableStack();
    ipamDelegate(ipam, { command: "ADD" } as PluginRequest, context, undo).add();
    throw new Error("Cannot go on");
  } catch (error) {
    return { asked, failure: CniError.from(error) };
  }
}

test("what a delegate gave is given back when the ADD fails later", () => {
  const { asked, failure } = attempt(() => ({ result: {} }));
  expect(asked).toEqual(["ADD", "DEL"]);
  expect(failure.message).toBe("Cannot go on");
});

test("a delegate that fails is called for DEL as well, and a failure of that is told apart", () => {
  const { asked, failure } = attempt((command) => {
    throw new CniError(11, `${command} fails`, { details: "why" });
  });
  expect(asked).toEqual(["ADD", "DEL"]);
  expect(failure).toMatchObject({
    code: 11,
    message: "ADD fails",
    details: "why; clean-up failed: DEL fails; why",
  });
});

test("a delegate that did not end is called for DEL; one that was not run is not", () => {
  const thrown = (error: CniError) => () => {
    throw error;
  };
  const late = attempt(thrown(new CniError(11, "Cannot wait")));
  expect(late.asked).toEqual(["ADD", "DEL"]);
  expect(late.failure.details).toBe("clean-up failed for the same reason");
  const absent = attempt(thrown(new NotRunError(7, "Cannot run", { details: "looked in /x" })));
  expect(absent.asked).toEqual(["ADD"]);
  expect(absent.failure).toMatchObject({ code: 7, message: "Cannot run", details: "looked in /x" });
});
