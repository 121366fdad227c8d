package frames

// fieldID tells a key of a frame that is known.
type fieldID uint8

const (
	fieldUnknown fieldID = iota
	fieldV
	fieldType
	fieldFrameID
	fieldTS
	fieldStreamID
	fieldSeq
	fieldEntry
	fieldPart
	fieldLast
	fieldEpoch
	fieldToolCallID
	fieldName
	fieldKey
	fieldValue
	fieldContent
	fieldMetadata
)

func fieldOf(key []byte) fieldID {
	switch string(key) {
	case "v":
		return fieldV
	case "type":
		return fieldType
	case "id":
		return fieldFrameID
	case "ts":
		return fieldTS
	case "streamId":
		return fieldStreamID
	case "seq":
		return fieldSeq
	case "entry":
		return fieldEntry
	case "part":
		return fieldPart
	case "last":
		return fieldLast
	case "epoch":
		return fieldEpoch
	case "toolCallId":
		return fieldToolCallID
	case "name":
		return fieldName
	case "key":
		return fieldKey
	case "value":
		return fieldValue
	case "content":
		return fieldContent
	case "metadata":
		return fieldMetadata
	}
	return fieldUnknown
}
