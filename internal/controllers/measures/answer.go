package measures

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

var errForm = errors.New("it is not the answer of a Prometheus")

// decodeAnswer reads what a Prometheus answers to an instant query: a scalar, or a vector of one, and as of when that is.
func decodeAnswer(body []byte) (value float64, evaluated time.Time, err error) {
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, time.Time{}, errForm
	}
	switch {
	case a.Status == "error":
		return 0, time.Time{}, errors.New(cmp.Or(a.Error, "an error without words"))
	case a.Status != "success":
		return 0, time.Time{}, errForm
	case a.Data.Type == "scalar":
		return decodeValue(a.Data.Result)
	case a.Data.Type != "vector":
		return 0, time.Time{}, fmt.Errorf("the result is a %s, and must be one number", a.Data.Type)
	}
	var series []struct {
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(a.Data.Result, &series); err != nil {
		return 0, time.Time{}, errForm
	}
	switch len(series) {
	case 0:
		return 0, time.Time{}, errors.New("the query has no result")
	case 1:
		return decodeValue(series[0].Value)
	}
	return 0, time.Time{}, fmt.Errorf("the result is %d series, and must be one number, as that of sum(...)", len(series))
}

// decodeValue reads [time, "number"], the time in seconds since 1970.
func decodeValue(data json.RawMessage) (value float64, evaluated time.Time, err error) {
	var pair []json.RawMessage
	var seconds float64
	var text string
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 || json.Unmarshal(pair[0], &seconds) != nil || json.Unmarshal(pair[1], &text) != nil {
		return 0, time.Time{}, errForm
	}
	const secondsMax = 1 << 40 // far beyond any clock, and no overflow
	value, err = strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.Abs(seconds) > secondsMax {
		return 0, time.Time{}, errForm
	}
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, time.Time{}, fmt.Errorf("the result is %s, which is no amount", text)
	}
	return value, time.UnixMilli(int64(seconds * 1000)), nil
}
