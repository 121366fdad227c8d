// Package modelbus is how a model request travels on wb.llm.<provider>: both
// sides' reading and writing, and the side that asks, which is an [engine.Model].
//
// The request is one message: PARAM model ("provider/model"), messages, tools,
// toolChoice and one PARAM for each setting of the model, then START. A tool is
// {name, description, schemaJson, strict}.
//
// The adapter answers META {request, identity, instance} first: an ABORT with the
// streamId of that request to wb.inst.<identity>.<instance> ends it. Then come
// TEXT and THINKING, TOOL_CALLs, whole or in pieces, META {stopReason, raw, usage},
// END; or ERROR and END. A TOOL_CALL has the provider's own id in metadata.modelCallId,
// and its name in metadata.modelName where that is no tool's name. Arguments that
// must not run stand as content.argumentsText, with the reason in metadata.error.
package modelbus
