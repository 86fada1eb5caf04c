import { expect, test } from "bun:test";
import { ignoreSystemErrors, withPurpose } from "./error.ts";
import { type Activity, observeActivities, unobserved } from "./observer.ts";
import { openFile } from "./file.ts";

const purposeOf = (activity: Activity): string => activity.kind === "step" ? String(activity.purpose) : activity.kind;

test("the inner one of two observers sees a step first, and the outer one goes on after its scope", () => {
  const seen: string[] = [];
  const look = (purpose: string) => withPurpose(purpose, () => void ignoreSystemErrors(() => openFile("/nonexistent")));
  {
    using _outer = observeActivities((activity, run) => {
      seen.push(`outer ${purposeOf(activity)}`);
      return run();
    });
    {
      using _inner = observeActivities((activity, run) => {
        seen.push(`inner ${purposeOf(activity)}`);
        return run();
      });
      look("a");
    }
    unobserved(() => look("b"));
    look("c");
  }
  look("d");
  expect(seen.filter((line) => /^(inner|outer) .$/.test(line))).toEqual(["inner a", "outer a", "outer c"]);
});
