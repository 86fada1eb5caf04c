/** What the part is asked on its socket: a line of JSON there, and one back. @module */
import type {
  AttachAnswer,
  AttachRequest,
  DeleteFlowsAnswer,
  DeleteFlowsRequest,
  SyncedAnswer,
  SyncedQuestion,
  VerdictsAnswer,
  VerdictsQuestion,
} from "../plugins/lib/policy/attach_request.ts";
import type { PolicyQuestion, PolicyVerdict } from "./explain.ts";

export const policySocketPath = (stateDirectory: string): string => `${stateDirectory}/socket`;

/** The command `cni policy test` asks this. */
export interface TestRequest {
  readonly test: PolicyQuestion;
}

export type PolicyRequest = AttachRequest | SyncedQuestion | VerdictsQuestion | DeleteFlowsRequest | TestRequest;

export type PolicyAnswer =
  | AttachAnswer
  | SyncedAnswer
  | VerdictsAnswer
  | DeleteFlowsAnswer
  | { readonly verdict: PolicyVerdict }
  | { readonly error: string };
