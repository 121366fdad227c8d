package tool

import "github.com/weavebus/weavebus/pkg/frames"

// TextPart makes a part of text, for [Result.Parts].
func TextPart(text string) frames.Part {
	return frames.Part{Type: "text", MediaType: "text/plain", Text: text}
}

// ImagePart makes a part that holds an image, such as one of image/png.
func ImagePart(mediaType string, data []byte) frames.Part {
	return frames.Part{Type: "image", MediaType: mediaType, Data: data}
}

// AudioPart makes a part that holds sound, such as one of audio/wav.
func AudioPart(mediaType string, data []byte) frames.Part {
	return frames.Part{Type: "audio", MediaType: mediaType, Data: data}
}

// ResourcePart makes a part that names what the model may ask for elsewhere.
func ResourcePart(uri, name, mediaType string) frames.Part {
	return frames.Part{Type: "resource", URI: uri, Name: name, MediaType: mediaType}
}
